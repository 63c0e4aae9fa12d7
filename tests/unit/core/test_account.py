"""Accounts of slices are closed by arithmetic, whatever the runs of a task saw."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.core.account import (
    CUT,
    SliceAccount,
    SliceEnd,
    SweepAccount,
    add_accounts,
    slice_account,
)

COUNTS = st.integers(0, 50)
ACCOUNTS = st.builds(SliceAccount, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
ENDS = st.lists(st.builds(SliceEnd, ACCOUNTS, st.sampled_from([None, "Billing is locked"])))


def end(reason: str | None = None, **counts: int) -> SliceEnd:
    return SliceEnd(SliceAccount(**counts), reason)


def test_slice_that_claimed_all_is_complete() -> None:
    assert slice_account(5, 5, [end(given=5, claimed=5)]) == SweepAccount(5, 5)


def test_each_reason_for_not_claiming_is_told_by_its_own_name() -> None:
    ended = end(given=10, claimed=4, skipped=3, gone=2, later=1)

    assert slice_account(10, 4, [ended]) == SweepAccount(10, 4, skipped=3, gone=2, later=1)


def test_messages_that_nobody_can_explain_are_counted_as_such() -> None:
    account = slice_account(10, 4, [end(given=10, claimed=4, skipped=3)])

    assert account == SweepAccount(10, 4, skipped=3, unexplained=3)


def test_what_left_between_the_count_and_the_read_is_gone() -> None:
    assert slice_account(10, 7, [end(given=7, claimed=7)]) == SweepAccount(10, 7, gone=3)


def test_what_came_between_the_count_and_the_read_was_found() -> None:
    assert slice_account(10, 12, [end(given=12, claimed=12)]) == SweepAccount(12, 12)


def test_what_came_between_the_count_and_the_read_was_found_where_it_was_locked() -> None:
    account = slice_account(10, 5, [end(given=12, claimed=5, skipped=7)])

    assert account == SweepAccount(12, 5, skipped=7)


def test_slice_without_an_end_is_cut_and_what_nobody_claimed_is_left() -> None:
    expected = SweepAccount(10, 4, left=6, is_complete=False, reason=CUT)
    assert slice_account(10, 4, []) == expected


def test_slice_that_was_cut_has_left_what_it_has_not_seen() -> None:
    ended = end("the server went away", given=8, claimed=4, skipped=1, gone=2)

    account = slice_account(10, 4, [ended])

    assert account == SweepAccount(
        10, 4, skipped=1, gone=2, left=3, is_complete=False, reason="the server went away"
    )


def test_read_that_broke_off_is_made_good_by_a_run_that_is_complete() -> None:
    broken = end("The task read 3 of 10 keys", given=3, claimed=3)
    again = end(given=7, claimed=6, skipped=1)

    assert slice_account(10, 9, [broken, again]) == SweepAccount(10, 9, skipped=1)
    assert slice_account(10, 9, [again, broken]) == SweepAccount(10, 9, skipped=1)


def test_what_another_run_had_claimed_before_the_read_is_not_gone() -> None:
    cut = end("The task read 3 of 10 keys", given=3, claimed=3)
    again = end(given=7, claimed=2, left=5)

    assert slice_account(10, 5, [cut, again]) == SweepAccount(10, 5, left=5)


def test_message_that_one_run_saw_locked_while_another_claimed_it_counts_as_claimed() -> None:
    ends = [end(given=10, claimed=6, skipped=4), end("cut", given=10, claimed=4)]

    assert slice_account(10, 10, ends) == SweepAccount(10, 10)


def test_what_an_unanswered_commit_had_claimed_does_not_hide_what_was_left() -> None:
    ended = end(given=100, claimed=65, gone=20, left=15)

    assert slice_account(100, 85, [ended]) == SweepAccount(100, 85, left=15)


def test_what_another_run_had_claimed_does_not_hide_what_the_last_one_left() -> None:
    ended = end(given=100, claimed=10, gone=50, left=40)

    assert slice_account(100, 60, [ended]) == SweepAccount(100, 60, left=40)


def test_what_was_locked_by_an_unanswered_commit_does_not_hide_what_was_left() -> None:
    account = slice_account(10, 5, [end(given=10, skipped=5, left=5)])

    assert account == SweepAccount(10, 5, left=5)


def test_failures_of_an_unanswered_commit_do_not_hide_what_was_left() -> None:
    ended = end(given=10, claimed=4, later=3, left=3)

    assert slice_account(10, 7, [ended]) == SweepAccount(10, 7, left=3)


def test_sweep_is_complete_only_if_all_its_slices_are() -> None:
    slices = [SweepAccount(5, 5), SweepAccount(6, 2, left=4, is_complete=False, reason="locked")]

    assert add_accounts(slices) == SweepAccount(11, 7, left=4, is_complete=False, reason="locked")
    assert add_accounts([]) == SweepAccount()


@given(planned=COUNTS, claimed=COUNTS, ends=ENDS)
def test_account_adds_up_whatever_was_seen(
    planned: int, claimed: int, ends: list[SliceEnd]
) -> None:
    a = slice_account(planned, claimed, ends)

    assert a.found == a.claimed + a.skipped + a.gone + a.later + a.held + a.left + a.unexplained
    assert a.claimed == claimed
    assert a.found >= planned
    assert min(a.skipped, a.gone, a.later, a.left, a.unexplained) >= 0
    assert a.is_complete == (a.reason is None) == any(e.reason is None for e in ends)


@pytest.mark.parametrize("name", ["claimed", "skipped", "gone", "later", "left"])
def test_sum_of_accounts_is_that_of_each_count(name: str) -> None:
    both = SliceAccount(**{"given": 3, name: 3}) + SliceAccount(**{"given": 4, name: 4})

    assert both == SliceAccount(**{"given": 7, name: 7})
