"""The contracts for authors of a store or a queue."""

import importlib
import inspect

import pytest

from duesweep_testing.contract import QueueContract, StoreContract

PARTS = [
    part
    for contract in (StoreContract, QueueContract)
    for part in contract.__mro__
    if part.__module__ != "builtins"
]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_failures_of_a_contract_show_what_was_compared(part: type) -> None:
    module = importlib.import_module(part.__module__)

    is_rewritten = "@pytest_ar" in vars(module)

    assert is_rewritten


@pytest.mark.parametrize("contract", [StoreContract, QueueContract])
def test_no_test_of_a_contract_hides_another_of_the_same_name(contract: type) -> None:
    names = [
        name
        for part in contract.__mro__
        for name, member in vars(part).items()
        if inspect.isfunction(member)
    ]

    assert sorted(set(names)) == sorted(names)
    assert all(name.startswith("test_") for name in names)
