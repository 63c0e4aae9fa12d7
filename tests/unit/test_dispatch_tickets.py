"""What a task reads of its slice: all of it, or it says what is missing."""

from typing import Any

import pytest
from unit.dispatch_world import letter, slice_end, world_of

from duesweep.account import CUT, SliceAccount, SliceEnd, slice_account
from duesweep.dispatch import DispatchJob, Tickets, dispatch_slice, read_tickets
from duesweep.policy import BatchLimits, Retry
from duesweep.testing.builders import delayed_row


def rows(*chunks: tuple[str | None, str | None, int | None]) -> Any:
    """Rows as Spark hands them to a task."""
    names = ("tickets", "sizes", "total")
    return [dict(zip(names, chunk, strict=True)) for chunk in chunks]


def test_tickets_of_all_rows_are_read() -> None:
    found = read_tickets(rows(("a,b", "1,2", 3), ("c", "30", 3)))

    assert (found.tickets, list(found.sizes), found.total) == (["a", "b", "c"], [1, 2, 30], 3)
    assert found.fault is None


def test_slice_without_tickets_has_a_row_and_is_whole() -> None:
    assert read_tickets(rows((None, None, None))) == Tickets([], read_tickets([]).sizes, 0)
    assert read_tickets(rows((None, None, None))).fault is None


@pytest.mark.parametrize(
    ("chunks", "says"),
    [([], "read 0 of its keys"), ([("a,b", "1,1", 5)], "read 2 of 5 keys")],
    ids=["before its first row", "in the middle"],
)
def test_read_that_broke_off_is_told_from_one_that_came_to_its_end(
    chunks: list[tuple[str, str, int]], says: str
) -> None:
    fault = read_tickets(rows(*chunks)).fault

    assert fault is not None
    assert says in fault


def test_slice_that_was_read_in_part_delivers_that_part_and_ends_as_cut() -> None:
    stored = [delayed_row() for _ in range(5)]
    world = world_of(*stored)
    run = world.store.open_sweep()
    job = DispatchJob(
        store=world.store,
        queue=world.queue,
        run=run,
        limits=BatchLimits(),
        retry=Retry(),
        max_exhausted=1_000,
        error_queue=None,
        clock=world.clock,
    )
    some = Tickets([row.key for row in stored[:2]], [100, 100], 5)

    dispatch_slice(job, 0, some)

    assert world.queue.letters["Billing"] == [letter(row) for row in stored[:2]]
    assert world.ends(run) == [slice_end(some.fault, given=2, claimed=2)]
    account = slice_account(5, 2, [SliceEnd(SliceAccount(given=2, claimed=2), some.fault)])
    assert (account.skipped, account.left, account.is_complete) == (0, 3, False)


def test_end_that_says_nothing_has_a_reason_of_its_own() -> None:
    assert slice_account(5, 2, []).reason == CUT
