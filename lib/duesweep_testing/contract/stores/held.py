"""Tests of pauses and limits, for stores that keep them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise

import pytest

from duesweep.core.policy import Pause, RateLimit
from duesweep.stores.task import TaskSession
from duesweep_testing.contract.stores import steps
from duesweep_testing.contract.subjects import StoreUnderTest
from duesweep_testing.sweeps import open_sweep

HOUR = timedelta(hours=1)
SESSIONS, TURNS, AT_ONCE = 4, 10, 50


class HeldContract:
    """Pauses and limits are kept with the messages, and every session sees them."""

    # Of the first pattern a store may need the task to tell whether it fits.
    @pytest.mark.parametrize("pattern", ["B*g", "Billing"])
    def test_claim_tells_what_is_paused_and_returns_or_counts_it(
        self, subject: StoreUnderTest, pattern: str
    ) -> None:
        run, [row] = steps.load(subject, steps.row(subject))
        with steps.operator(subject) as session:
            session.people.pause(pattern, None, "ops@host", "the bank is down")

        with steps.batch(subject) as task:
            claim = steps.claim(subject, task, run, row)

        assert claim.paused == (pattern,)
        assert len(claim.messages) + claim.held == 1
        assert (claim.skipped, claim.gone, claim.later) == (0, 0, 0)
        assert subject.waiting() == {row.key}

    def test_pause_is_told_with_who_and_why(self, subject: StoreUnderTest) -> None:
        until = subject.server_time().replace(microsecond=0) + HOUR
        with steps.operator(subject) as session:
            session.people.pause("Billing*", until, "ops@host", "the bank is down")
            session.people.pause("*", None, "ops@host", "all of it")
            everything, billing = session.due.pauses()

        assert (everything.pattern, everything.until) == ("*", None)
        expected = Pause("Billing*", billing.paused_at, until, "ops@host", "the bank is down")
        assert billing == expected
        assert abs(billing.paused_at - subject.server_time()) < steps.MINUTE

    def test_second_pause_of_a_pattern_takes_the_place_of_the_first(
        self, subject: StoreUnderTest
    ) -> None:
        with steps.operator(subject) as session:
            session.people.pause("Billing", None, "first@host", "once")
            session.people.pause("Billing", None, "second@host", "again")
            [pause] = session.due.pauses()

        assert (pause.given_by, pause.reason) == ("second@host", "again")

    def test_pause_ends_at_its_time(self, subject: StoreUnderTest) -> None:
        run = open_sweep(subject.store)
        with steps.operator(subject) as session:
            session.people.pause("Billing", subject.server_time() - HOUR, "ops@host", "over")

            assert session.due.pauses() == []
            assert not session.people.resume("Billing")
        with steps.batch(subject) as task:
            assert steps.claim(subject, task, run).paused == ()

    def test_resumed_pattern_is_paused_no_more_and_others_stay(
        self, subject: StoreUnderTest
    ) -> None:
        with steps.operator(subject) as session:
            session.people.pause("Billing", None, "ops@host", "why")
            session.people.pause("Billing*", None, "ops@host", "why")

            assert session.people.resume("Billing")
            assert not session.people.resume("Billing")
            assert [one.pattern for one in session.due.pauses()] == ["Billing*"]

    def test_what_is_reserved_begins_after_what_was_reserved_before(
        self, subject: StoreUnderTest
    ) -> None:
        limit = RateLimit("Billing*", 100)
        with limiting(subject) as session:
            first = session.reserve(limit, 200)
            second = session.reserve(limit, 1)
            other = session.reserve(RateLimit("Shipping", 100), 1)

        assert first == other == 0
        assert 1 < second < 201 * limit.seconds_each

    def test_sessions_that_reserve_at_once_share_the_limit(self, subject: StoreUnderTest) -> None:
        limit = RateLimit("Billing*", 1)
        run_seconds = SESSIONS * TURNS * AT_ONCE * limit.seconds_each

        def reserve_in_turns(_: int) -> list[float]:
            with limiting(subject) as session:
                return [session.reserve(limit, AT_ONCE) for _ in range(TURNS)]

        with ThreadPoolExecutor(SESSIONS) as pool:
            waits = sorted(
                wait for each in pool.map(reserve_in_turns, range(SESSIONS)) for wait in each
            )

        assert waits[0] == 0
        # Each begins where the one before it ends, less the time that has passed.
        apart = [after - before for before, after in pairwise(waits)]
        each = AT_ONCE * limit.seconds_each
        assert all(each / 2 < seconds < each * 1.1 for seconds in apart)
        assert waits[-1] < run_seconds


@contextmanager
def limiting(subject: StoreUnderTest) -> Iterator[TaskSession]:
    """A task's session that reserves; skips the test if it cannot."""
    steps.operators(subject)
    with subject.store.open_task() as session:
        yield session
