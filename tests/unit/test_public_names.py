"""The package's interface for programs: names, and types for their checkers."""

import ast
from pathlib import Path
from typing import Any

import pytest

import duesweep
from duesweep.config import Config
from duesweep.operations import duesweep as contents

_PACKAGE = Path(duesweep.__file__).parent


def test_names_for_programs_are_those_that_python_md_shows() -> None:
    page = (_PACKAGE.parents[1] / "docs" / "python.md").read_text(encoding="utf-8")

    assert duesweep.__all__ == sorted(duesweep.__all__)
    assert [name for name in duesweep.__all__ if name not in page] == []


@pytest.mark.parametrize("name", duesweep.__all__)
def test_each_is_there_for_programs_and_for_checkers_of_types(name: str) -> None:
    tree = ast.parse((_PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    (block,) = (one for one in tree.body if isinstance(one, ast.If))
    typed = {
        alias.name: one.module
        for one in block.body
        if isinstance(one, ast.ImportFrom)
        for alias in one.names
    }

    found = getattr(duesweep, name)

    assert found.__name__ == name
    assert found.__module__ == typed[name]
    assert set(typed) == set(duesweep.__all__)


def test_types_are_shipped() -> None:
    for name in ("duesweep", "duesweep_testing", "duesweep_transport"):
        assert (_PACKAGE.with_name(name) / "py.typed").is_file()


def test_method_of_a_subclass_stays_although_it_calls_the_one_of_its_base(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    # As before the first use, whatever other tests did.
    method = contents._Method("pauses", "resume")  # noqa: SLF001 - a method that is not used yet
    method.__set_name__(duesweep.Duesweep, "resume")
    monkeypatch.setattr(duesweep.Duesweep, "resume", method)
    monkeypatch.setattr(
        "duesweep.operations.pauses.resume", lambda _, destination: calls.append(destination)
    )

    class Guarded(duesweep.Duesweep):
        def resume(self, destination: str) -> Any:
            calls.append("guarded")
            return super().resume(destination)

    endpoint = Guarded(Config.model_construct())

    endpoint.resume("A")
    endpoint.resume("B")

    assert calls == ["guarded", "A", "guarded", "B"]
