"""Tests of messages that a store itself moves into their queues, for stores that can."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from duesweep.core.errors import SweepClosedError, SweepStoppedError, UnusualBatchError
from duesweep.core.message import Address, Delivered
from duesweep.core.policy import Slicing
from duesweep.stores.sweeps import SweepRun
from duesweep.stores.task import Forwarded, Moved, Table, TaskSession
from duesweep.stores.tombstone import Tombstones
from duesweep.sweep.claim_keys import read_claim_keys
from duesweep_testing.builders import DelayedRow
from duesweep_testing.contract.stores import steps
from duesweep_testing.contract.subjects import StoreUnderTest
from duesweep_testing.sweeps import close_sweep, move_into, roll_back, stop_sweep


class MoveContract:
    """A store moves the messages that a claim would lock, all or nothing."""

    def test_moved_messages_are_those_of_a_claim_and_arrive_with_the_commit(
        self, subject: StoreUnderTest
    ) -> None:
        run, rows = steps.load(subject, steps.row(subject), steps.row(subject))
        with subject.store.open_task() as session, roll_back(session):
            claim = steps.claim(subject, session, run, *rows)

        with steps.batch(subject) as session:
            moved = move(subject, session, run, planned(subject, run))
            assert subject.waiting() == {row.key for row in rows}, "before the commit"

        tombstones = moved.tombstones
        claimed = {message.key: message for message in claim.messages}
        sent = [claimed[key] for key in tombstones.keys]
        delivered = [Delivered(m, q) for m, q in zip(sent, tombstones.queues, strict=True)]
        assert tombstones == Tombstones.of(delivered, subject.own_queue)
        assert subject.waiting() == set()
        assert sorted(subject.delivered()) == sorted(message.headers_text for message in sent)
        assert [entry.dispatched for entry in steps.batches(subject, run)] == [2]

    def test_rollback_brings_back_what_was_moved(self, subject: StoreUnderTest) -> None:
        run, [row] = steps.load(subject, steps.row(subject))
        groups = planned(subject, run)

        with subject.store.open_task() as session:
            with roll_back(session):
                move(subject, session, run, groups)
            assert steps.claimable(subject, run, row) == [row.key]

        assert (subject.waiting(), subject.delivered()) == ({row.key}, [])
        assert steps.batches(subject, run) == []

    def test_gone_and_later_messages_are_counted_and_the_others_moved(
        self, subject: StoreUnderTest
    ) -> None:
        run, [gone, later, there] = steps.load(subject, *[steps.row(subject) for _ in range(3)])
        groups = planned(subject, run)
        with steps.batch(subject) as session:
            move(subject, session, run, only(subject, groups, gone))
        subject.reschedule(later.key, subject.now() + timedelta(hours=1))

        with steps.batch(subject) as session:
            moved = move(subject, session, run, groups)

        assert moved.tombstones.keys == [there.key]
        # If claim keys are Dues, a message that was rescheduled counts as gone.
        is_found_by_key = subject.claim_keys([there]) == [there.key]
        assert (moved.gone, moved.later) == ((1, 1) if is_found_by_key else (2, 0))
        assert subject.waiting() == {later.key}

    def test_row_that_others_hold_makes_the_batch_unusual_within_a_moment(
        self, subject: StoreUnderTest
    ) -> None:
        steps.need_skipping(subject)
        run, [held, free] = steps.load(subject, steps.row(subject), steps.row(subject))
        groups = planned(subject, run)

        with steps.batch(subject) as other, subject.store.open_task() as session:
            steps.claim(subject, other, run, held)
            with pytest.raises(UnusualBatchError), session.transaction():
                move(subject, session, run, groups)
            with session.transaction():
                assert steps.keys(steps.claim(subject, session, run, held, free)) == [free.key]

        assert subject.delivered() == []

    def test_message_in_back_off_makes_the_batch_unusual(self, subject: StoreUnderTest) -> None:
        run, [failed, other] = steps.load(subject, steps.row(subject), steps.row(subject))
        groups = planned(subject, run)
        steps.fail(subject, run, failed)

        with pytest.raises(UnusualBatchError), steps.batch(subject) as session:
            move(subject, session, run, groups)

        assert (subject.waiting(), subject.delivered()) == ({failed.key, other.key}, [])
        assert subject.attempts() == {failed.key: 1}

    def test_message_after_its_back_off_is_moved_with_its_counter(
        self, subject: StoreUnderTest
    ) -> None:
        run, [failed] = steps.load(subject, steps.row(subject))
        steps.fail(subject, run, failed)
        subject.end_back_off()

        with steps.batch(subject) as session:
            moved = move(subject, session, run, planned(subject, run))

        assert moved.tombstones.attempts == [1]
        assert subject.attempts() == {}

    @pytest.mark.parametrize("error", [SweepClosedError, SweepStoppedError])
    def test_sweep_that_is_closed_or_to_stop_moves_nothing(
        self, subject: StoreUnderTest, error: type[Exception]
    ) -> None:
        run, [row] = steps.load(subject, steps.row(subject))
        groups = planned(subject, run)
        if error is SweepClosedError:
            close_sweep(subject.store, run)
        else:
            stop_sweep(subject.store, run, 0)

        with pytest.raises(error), steps.batch(subject) as session:
            move(subject, session, run, groups)

        assert (subject.waiting(), subject.delivered()) == ({row.key}, [])


def planned(subject: StoreUnderTest, run: SweepRun) -> Sequence[Forwarded]:
    """The claim keys of all that is due, as a plan has them."""
    with subject.store.open_driver() as session:
        plan = session.due.plan(run.horizon, Slicing(1, least_rows=100))
        found = read_claim_keys(session.due.claim_keys(plan, 0))
    return found.groups(range(len(found.keys)))


def only(subject: StoreUnderTest, groups: Sequence[Forwarded], row: DelayedRow) -> list[Forwarded]:
    """The group of one row; a plan's claim key may say more than its row does."""
    [begin] = subject.claim_keys([row])
    return [
        Forwarded(group.forward, [key])
        for group in groups
        for key in group.keys
        if key.startswith(begin)
    ]


def move(
    subject: StoreUnderTest, session: TaskSession, run: SweepRun, groups: Sequence[Forwarded]
) -> Moved:
    """Move messages, and account for them; skips the test if the store cannot."""
    if not session.can_move:
        pytest.skip("it does not move messages itself")
    with subject.queue.open(session) as queue:

        def table_of(address: Address) -> Table:
            table = queue.table(queue.resolve(address))
            assert table is not None
            return table

        moved = move_into(session, run, groups, table_of)
    session.finish_moved(run, 0, moved, moved.server_us)
    return moved
