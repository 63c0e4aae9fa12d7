"""Accounts of slices are closed by arithmetic, whatever the runs of a task saw."""

from collections.abc import Sequence
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.core.account import (
    CUT,
    Account,
    BreakerReport,
    CarefulBatches,
    SliceEnd,
    add_ends,
    close_slice,
    close_slices,
)

COUNTS = st.integers(0, 50)
ACCOUNTS = st.builds(Account, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
ENDS = st.lists(st.builds(SliceEnd, ACCOUNTS, st.sampled_from([None, "Billing is locked"])))


def end(reason: str | None = None, **counts: int) -> SliceEnd:
    return SliceEnd(Account(**counts), reason)


_AWAY = "the server went away"
# How many messages were planned, how many were claimed, the reports of its runs, and how it ends.
_SLICES: dict[str, tuple[int, int, Sequence[SliceEnd], SliceEnd]] = {
    "all were claimed": (5, 5, [end(given=5, claimed=5)], end(given=5, claimed=5)),
    "each reason for not claiming has its own name": (
        *(10, 4, [end(given=10, claimed=4, skipped=3, gone=2, later=1)]),
        end(given=10, claimed=4, skipped=3, gone=2, later=1),
    ),
    "what nobody can explain is counted as such": (
        *(10, 4, [end(given=10, claimed=4, skipped=3)]),
        end(given=10, claimed=4, skipped=3),
    ),
    "what left between the count and the read is gone": (
        *(10, 7, [end(given=7, claimed=7)]),
        end(given=10, claimed=7, gone=3),
    ),
    "what came between the count and the read was found": (
        *(10, 12, [end(given=12, claimed=12)]),
        end(given=12, claimed=12),
    ),
    "and was found where it was locked": (
        *(10, 5, [end(given=12, claimed=5, skipped=7)]),
        end(given=12, claimed=5, skipped=7),
    ),
    "without an end, what nobody claimed is left": (
        *(10, 4, []),
        end(CUT, given=10, claimed=4, left=6),
    ),
    "a slice that was cut has left what it has not seen": (
        *(10, 4, [end(_AWAY, given=8, claimed=4, skipped=1, gone=2)]),
        end(_AWAY, given=10, claimed=4, skipped=1, gone=2, left=3),
    ),
    "a complete run makes a read that broke off good": (
        *(10, 9, [end("3 of 10", given=3, claimed=3), end(given=7, claimed=6, skipped=1)]),
        end(given=10, claimed=9, skipped=1),
    ),
    "and so it does before it": (
        *(10, 9, [end(given=7, claimed=6, skipped=1), end("3 of 10", given=3, claimed=3)]),
        end(given=10, claimed=9, skipped=1),
    ),
    "what another run had claimed before the read is not gone": (
        *(10, 5, [end("3 of 10", given=3, claimed=3), end(given=7, claimed=2, left=5)]),
        end(given=10, claimed=5, left=5),
    ),
    "what one run saw locked while another claimed it counts as claimed": (
        *(10, 10, [end(given=10, claimed=6, skipped=4), end("cut", given=10, claimed=4)]),
        end(given=10, claimed=10),
    ),
    "what an unanswered commit had claimed does not hide what was left": (
        *(100, 85, [end(given=100, claimed=65, gone=20, left=15)]),
        end(given=100, claimed=85, left=15),
    ),
    "nor does what another run had claimed": (
        *(100, 60, [end(given=100, claimed=10, gone=50, left=40)]),
        end(given=100, claimed=60, left=40),
    ),
    "nor does what was locked by an unanswered commit": (
        *(10, 5, [end(given=10, skipped=5, left=5)]),
        end(given=10, claimed=5, left=5),
    ),
    "nor do its failures": (
        *(10, 7, [end(given=10, claimed=4, later=3, left=3)]),
        end(given=10, claimed=7, left=3),
    ),
}


@pytest.mark.parametrize("case", _SLICES)
def test_account_of_a_slice(case: str) -> None:
    planned, claimed, ends, expected = _SLICES[case]

    assert close_slice(planned, claimed, ends) == expected


# The messages that were planned for two slices, the claims from them, the ends of their tasks, and
# the end of the sweep.
_MOVED: dict[str, tuple[list[int], list[int], list[SliceEnd], SliceEnd]] = {
    "rows that moved into another slice are neither new nor gone": (
        *([300, 300], [600, 0], [end(given=600, claimed=600), end()]),
        end(given=600, claimed=600),
    ),
    "rows that left both slices are gone": (
        *([300, 300], [290, 280], [end(given=290, claimed=290), end(given=280, claimed=280)]),
        end(given=600, claimed=570, gone=30),
    ),
    "more moved than the other slice was given": (
        *([300, 300], [310, 200], [end(given=310, claimed=310), end(given=200, claimed=200)]),
        end(given=600, claimed=510, gone=90),
    ),
    "rows that became eligible after the plan are given in addition": (
        *([300, 300], [310, 300], [end(given=310, claimed=310), end(given=300, claimed=300)]),
        end(given=610, claimed=610),
    ),
    "what was read and then gone stays gone": (
        *(
            [300, 300],
            [310, 295],
            [end(given=310, claimed=310), end(given=300, claimed=295, gone=5)],
        ),
        end(given=610, claimed=605, gone=5),
    ),
}


@pytest.mark.parametrize("case", _MOVED)
def test_row_that_moved_from_slice_to_slice_counts_once(case: str) -> None:
    planned, claimed, ends, expected = _MOVED[case]
    closed = close_slices(planned, dict(enumerate(claimed)), {0: ends[:1], 1: ends[1:]})

    assert closed == expected


def test_sweep_is_complete_only_if_all_its_slices_are() -> None:
    slices = [end(given=5, claimed=5), end("locked", given=6, claimed=2, left=4)]

    assert add_ends(slices) == end("locked", given=11, claimed=7, left=4)
    assert add_ends([]) == end()


def test_what_nobody_can_explain_is_counted() -> None:
    assert Account(given=10, claimed=4, skipped=3).unexplained == 3


def test_of_a_task_that_ran_again_the_last_breakers_count() -> None:
    first, last = (BreakerReport(name, "open", "", 1.0, 1, "locked") for name in ("A", "B"))
    careful = CarefulBatches("odd", 2)
    runs = [SliceEnd(Account(), "cut", (first,)), SliceEnd(Account(), None, (last,), (careful,))]

    closed = close_slice(0, 0, runs)
    assert (closed.breakers, closed.careful_batches) == ((last,), (careful,))
    assert close_slice(0, 0, []).breakers == ()


def test_careful_batches_of_all_slices_are_told_by_their_commonest_reasons() -> None:
    slices = [
        SliceEnd(Account(), None, (), tuple(CarefulBatches(reason, n) for reason, n in found))
        for found in ([("a", 1), ("b", 2)], [("c", 3), ("b", 9), ("d", 4)])
    ]

    told = add_ends(slices).careful_batches

    assert told == tuple(CarefulBatches(*one) for one in [("b", 11), ("d", 4), ("c", 3)])


@given(planned=COUNTS, claimed=COUNTS, ends=ENDS)
def test_account_adds_up_whatever_was_seen(
    planned: int, claimed: int, ends: list[SliceEnd]
) -> None:
    closed = close_slice(planned, claimed, ends)

    a = closed.account
    assert a.claimed == claimed
    assert a.given >= planned
    assert min(a.skipped, a.gone, a.later, a.held, a.left, a.unexplained) >= 0
    assert (closed.reason is None) == any(e.reason is None for e in ends)


@given(slices=st.lists(st.tuples(COUNTS, COUNTS, ENDS), max_size=4))
def test_account_of_a_sweep_adds_up_whatever_was_seen(
    slices: list[tuple[int, int, list[SliceEnd]]],
) -> None:
    planned, claimed, ends = ([one[at] for one in slices] for at in range(3))
    closed = close_slices(planned, dict(enumerate(claimed)), dict(enumerate(ends)))

    a, alone = closed.account, add_ends(close_slice(*one) for one in slices).account
    assert a.claimed == sum(claimed)
    assert a.given >= sum(planned)
    assert a.gone >= 0
    assert a.unexplained == alone.unexplained
    assert alone.given - a.given == alone.gone - a.gone >= 0


def test_sum_of_accounts_is_that_of_each_count() -> None:
    names = [field.name for field in fields(Account)]
    one, other = (Account(**dict(zip(names, range(at, 99), strict=False))) for at in (1, 20))

    both = one + other

    for name in names:
        assert getattr(both, name) == getattr(one, name) + getattr(other, name), name
