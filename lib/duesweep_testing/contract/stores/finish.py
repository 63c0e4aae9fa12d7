"""Tests of `finish`, which changes the rows of a batch in one transaction."""

from collections.abc import Sequence
from dataclasses import replace

from duesweep.core.errors import MessageError, QueueNotFoundError
from duesweep.core.message import MESSAGE_ID, Delivered, Exhausted, Failed, Outcome
from duesweep.stores import tombstone
from duesweep.stores.sweeps import SweepRun
from duesweep.stores.task import TaskSession
from duesweep_testing.builders import DelayedRow
from duesweep_testing.contract.stores import steps
from duesweep_testing.contract.subjects import StoreUnderTest
from duesweep_testing.journal import BatchEntry, ExhaustedEntry, batch_entry, exhausted_entry
from duesweep_testing.sweeps import roll_back


class FinishContract:
    """`finish` removes messages, counts failures and writes the journal: all or nothing."""

    def test_finish_removes_counts_and_journals_in_the_claims_transaction(
        self, subject: StoreUnderTest
    ) -> None:
        run, rows = steps.load(subject, *_one_of_each(subject))

        with steps.batch(subject) as session:
            outcomes, server_us = _finish_one_of_each(subject, session, run, rows)

            # Others see nothing of it before the commit.
            assert subject.waiting() == {row.key for row in rows}
            assert subject.attempts() == {}
            assert subject.journal(run) == []
            if subject.abilities.skips_locked:
                assert steps.claimable(subject, run, *rows) == []

        assert subject.waiting() == {rows[1].key}
        assert subject.attempts() == {rows[1].key: 1}
        exhausted = [one for one in outcomes if isinstance(one, Exhausted)]
        assert subject.journal(run) == [
            _account(subject, exhausted[0], rows[2], server_us),
            _account(subject, exhausted[1], rows[3], server_us),
            batch_entry(7, outcomes, server_us, subject.own_queue),
        ]

    def test_finish_that_is_rolled_back_never_happened(self, subject: StoreUnderTest) -> None:
        run, rows = steps.load(subject, *_one_of_each(subject))

        with subject.store.open_task() as session, roll_back(session):
            _finish_one_of_each(subject, session, run, rows)
            assert session.grant_exhausted(run, 2, 10) == 2

        assert subject.waiting() == {row.key for row in rows}
        assert subject.attempts() == {}
        assert subject.journal(run) == []
        assert subject.counters(run) == (0, 0)
        assert set(steps.claimable(subject, run, *rows)) == {row.key for row in rows}

    def test_message_that_leaves_takes_its_retry_counter_along(
        self, subject: StoreUnderTest
    ) -> None:
        run, rows = steps.load(subject, *[steps.row(subject) for _ in range(3)])
        delivered, exhausted, other = rows
        for row in rows:
            steps.fail(subject, run, row)
        subject.end_back_off()

        with steps.batch(subject) as session:
            claim = steps.claim(subject, session, run, delivered, exhausted)
            by_key = {m.key: m for m in claim.messages}
            gone = Exhausted(by_key[exhausted.key], QueueNotFoundError("none"), None)
            outcomes: list[Outcome] = [Delivered(by_key[delivered.key], "Billing"), gone]
            session.finish(run, 0, outcomes, claim.server_us)

        assert subject.waiting() == {other.key}
        assert subject.attempts() == {other.key: 1}
        (entry,) = [e for e in subject.journal(run) if isinstance(e, BatchEntry) and e.dispatched]
        assert entry.attempts_changed
        assert entry.outcomes is not None
        assert tombstone.decode(entry.outcomes).to_pylist()[0]["attempts"] == 2

    def test_delivery_at_the_first_attempt_leaves_the_retry_counters_alone(
        self, subject: StoreUnderTest
    ) -> None:
        run, [row] = steps.load(subject, steps.row(subject))

        with steps.batch(subject) as session:
            claim = steps.claim(subject, session, run, row)
            session.finish(run, 0, steps.delivered(*claim.messages), claim.server_us)

        (entry,) = subject.journal(run)
        assert isinstance(entry, BatchEntry)
        assert not entry.attempts_changed

    def test_text_that_no_column_can_store_does_not_stop_the_journal(
        self, subject: StoreUnderTest
    ) -> None:
        strange = {MESSAGE_ID: "a\0b", "NServiceBus.EnclosedMessageTypes": "A\0"}
        rows = [steps.row(subject, "No\0where", more=strange) for _ in range(3)]
        run, rows = steps.load(subject, *rows)
        error = QueueNotFoundError("There is no queue \0")

        with steps.batch(subject) as session:
            claim = steps.claim(subject, session, run, *rows)
            delivered, failing, exhausted = claim.messages
            outcomes: list[Outcome] = [
                Delivered(delivered, "Billing"),
                Failed(failing, error, 3600),
                Exhausted(exhausted, error, None),
            ]
            session.finish(run, 0, outcomes, claim.server_us)

        assert subject.attempts() == {failing.key: 1}
        assert len(subject.journal(run)) == 2

    def test_savepoint_that_is_rolled_back_undoes_what_came_after_it(
        self, subject: StoreUnderTest
    ) -> None:
        run, [first, second] = steps.load(subject, steps.row(subject), steps.row(subject))
        with steps.batch(subject) as session:
            claim = steps.claim(subject, session, run, first)
            session.finish(run, 0, steps.delivered(*claim.messages), claim.server_us)

            with roll_back(session):
                claim = steps.claim(subject, session, run, second)
                session.finish(run, 0, steps.delivered(*claim.messages), claim.server_us)

        assert subject.waiting() == {second.key}
        assert len(subject.journal(run)) == 1


def _one_of_each(subject: StoreUnderTest) -> list[DelayedRow]:
    return [
        steps.row(subject),
        steps.row(subject, "Nowhere"),
        steps.row(subject, None, body=None),
        steps.poison(subject, body=b"\0\xff"),
    ]


def _finish_one_of_each(
    subject: StoreUnderTest, session: TaskSession, run: SweepRun, rows: Sequence[DelayedRow]
) -> tuple[list[Outcome], int]:
    claim = steps.claim(subject, session, run, *rows)
    by_key = {m.key: m for m in claim.messages}
    delivered, failing, exhausted, to_error = (by_key[row.key] for row in rows)
    error = QueueNotFoundError('There is no queue table "public"."Nowhere"')
    assert isinstance(to_error.headers, MessageError)
    outcomes: list[Outcome] = [
        Delivered(delivered, '"public"."Billing"'),
        Failed(failing, error, 3600),
        Exhausted(exhausted, error, None),
        Exhausted(to_error, to_error.headers, "error"),
    ]
    session.finish(run, 7, outcomes, claim.server_us)
    return outcomes, claim.server_us


def _account(
    subject: StoreUnderTest, exhausted: Exhausted, row: DelayedRow, server_us: int
) -> ExhaustedEntry:
    stored = replace(row, headers=subject.stored_headers(row))
    return exhausted_entry(7, exhausted, stored, server_us, own_queue=subject.own_queue)
