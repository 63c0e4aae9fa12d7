"""Tests of messages that are removed as they are claimed, for stores that can."""

from datetime import timedelta

import pytest

from duesweep.core.errors import SweepClosedError, UnusualBatchError
from duesweep.stores.base import Claim, SweepRun, TaskSession
from duesweep_testing.builders import DelayedRow
from duesweep_testing.contract.stores import steps
from duesweep_testing.contract.subjects import StoreUnderTest
from duesweep_testing.sweeps import close_sweep, roll_back


class TakeContract:
    """A store takes what a claim would lock, all or nothing."""

    def test_taken_messages_are_those_of_a_claim_and_leave_with_the_commit(
        self, subject: StoreUnderTest
    ) -> None:
        run, [first, second] = steps.load(subject, steps.row(subject), steps.row(subject))
        with subject.store.open_task() as session, roll_back(session):
            claimed = steps.claim(subject, session, run, first, second)

        with steps.batch(subject) as session:
            taken = take(subject, session, run, first, second)
            finish(session, run, taken)
            assert taken.messages == claimed.messages
            assert subject.waiting() == {first.key, second.key}, "before the commit"

        assert subject.waiting() == set()
        assert [entry.dispatched for entry in steps.batches(subject, run)] == [2]

    def test_rollback_brings_back_what_was_taken(self, subject: StoreUnderTest) -> None:
        run, [row] = steps.load(subject, steps.row(subject))

        with subject.store.open_task() as session:
            with roll_back(session):
                finish(session, run, take(subject, session, run, row))
            assert subject.waiting() == {row.key}
            assert steps.claimable(subject, run, row) == [row.key]

        assert steps.batches(subject, run) == []

    def test_gone_and_later_messages_are_counted_and_the_others_taken(
        self, subject: StoreUnderTest
    ) -> None:
        run, [gone, later, there] = steps.load(subject, *[steps.row(subject) for _ in range(3)])
        with steps.batch(subject) as session:
            finish(session, run, take(subject, session, run, gone))
        subject.reschedule(later.key, subject.now() + timedelta(hours=1))

        with steps.batch(subject) as session:
            taken = take(subject, session, run, gone, later, there)
            finish(session, run, taken)

        assert steps.keys(taken) == [there.key]
        assert (taken.skipped, taken.gone, taken.later) == (0, 1, 1)
        assert subject.waiting() == {later.key}

    def test_row_that_others_hold_makes_the_batch_unusual_within_a_moment(
        self, subject: StoreUnderTest
    ) -> None:
        run, [held, free] = steps.load(subject, steps.row(subject), steps.row(subject))

        with steps.batch(subject) as other, subject.store.open_task() as session:
            steps.claim(subject, other, run, held)
            with pytest.raises(UnusualBatchError), session.transaction():
                take(subject, session, run, held, free)
            with session.transaction():
                assert steps.keys(steps.claim(subject, session, run, held, free)) == [free.key]

    def test_message_in_back_off_makes_the_batch_unusual(self, subject: StoreUnderTest) -> None:
        run, [failed, other] = steps.load(subject, steps.row(subject), steps.row(subject))
        steps.fail(subject, run, failed)

        with pytest.raises(UnusualBatchError), steps.batch(subject) as session:
            take(subject, session, run, failed, other)

        assert subject.waiting() == {failed.key, other.key}
        assert subject.attempts() == {failed.key: 1}

    def test_message_after_its_back_off_is_taken_with_its_counter(
        self, subject: StoreUnderTest
    ) -> None:
        run, [failed] = steps.load(subject, steps.row(subject))
        steps.fail(subject, run, failed)
        subject.end_back_off()

        with steps.batch(subject) as session:
            taken = take(subject, session, run, failed)
            finish(session, run, taken)

        assert [message.attempts for message in taken.messages] == [1]
        assert subject.attempts() == {}

    def test_closed_sweep_takes_nothing(self, subject: StoreUnderTest) -> None:
        run, [row] = steps.load(subject, steps.row(subject))
        close_sweep(subject.store, run)

        with pytest.raises(SweepClosedError), steps.batch(subject) as session:
            take(subject, session, run, row)

        assert subject.waiting() == {row.key}


def take(subject: StoreUnderTest, session: TaskSession, run: SweepRun, *rows: DelayedRow) -> Claim:
    """Take by the rows' claim keys; skips the test if the store cannot."""
    if not session.can_take:
        pytest.skip("it does not remove messages as it claims them")
    return session.take(run, subject.claim_keys(rows))


def finish(session: TaskSession, run: SweepRun, taken: Claim) -> None:
    """Account for all of them as delivered."""
    assert session.can_take
    session.finish_taken(run, 0, steps.delivered(*taken.messages), taken.server_us)
