"""A task reads all claim keys of its slice, or says how many are missing."""

from typing import Any

import pytest
from pyspark.sql import Row

from duesweep.core.account import CUT, slice_account
from duesweep.sweep.slice import ClaimKeys, read_claim_keys
from duesweep_testing.builders import delayed_row
from duesweep_testing.sweeps import open_sweep
from support.dispatch_world import one, slice_end, world_of


def rows(*chunks: tuple[str | None, str | None, int | None]) -> Any:
    """Rows as Spark hands them to a task."""
    return [Row(claim_keys=keys, sizes=sizes, total=total) for keys, sizes, total in chunks]


def test_claim_keys_of_all_rows_are_read() -> None:
    found = read_claim_keys(rows(("a,b", "1,2", 3), ("c", "30", 3)))

    assert (found.keys, list(found.sizes), found.total) == (["a", "b", "c"], [1, 2, 30], 3)
    assert found.fault is None


def test_slice_without_claim_keys_has_a_row_and_is_whole() -> None:
    assert read_claim_keys(rows((None, None, None))) == ClaimKeys([], read_claim_keys([]).sizes, 0)
    assert read_claim_keys(rows((None, None, None))).fault is None


@pytest.mark.parametrize(
    ("chunks", "says"),
    [([], "read 0 of its keys"), ([("a,b", "1,1", 5)], "read 2 of 5 keys")],
    ids=["before its first row", "in the middle"],
)
def test_read_that_broke_off_differs_from_a_complete_one(
    chunks: list[tuple[str, str, int]], says: str
) -> None:
    fault = read_claim_keys(rows(*chunks)).fault

    assert fault is not None
    assert says in fault


def test_slice_that_was_read_in_part_delivers_that_part_and_ends_as_cut() -> None:
    stored = [delayed_row() for _ in range(5)]
    world = world_of(*stored)
    run = open_sweep(world.store)
    keys = [row.key for row in stored[:2]]

    world.run_slice(run, keys, total=5)

    assert world.queue.arrived["Billing"] == [one(row) for row in stored[:2]]
    fault = ClaimKeys(keys, [100, 100], 5).fault
    assert fault is not None
    assert world.ends(run) == [slice_end(fault, given=2, claimed=2)]
    account = slice_account(5, 2, [world.ends(run)[0].end])
    assert (account.skipped, account.left, account.is_complete) == (0, 3, False)


def test_end_that_says_nothing_has_a_reason_of_its_own() -> None:
    assert slice_account(5, 2, []).reason == CUT
