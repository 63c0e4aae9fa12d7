"""What a batch does to its rows, in one transaction."""

from contract import steps
from contract.store_subjects import StoreUnderTest
from contract.transactions import rolled_back

from duesweep import tombstone
from duesweep.errors import (
    MessageError,
    QueueNotFoundError,
)
from duesweep.message import MESSAGE_ID
from duesweep.outcome import Delivered, Exhausted, Failed, Outcomes
from duesweep.stores.base import TaskSession
from duesweep.stores.values import SweepRun
from duesweep.testing.builders import DelayedRow
from duesweep.testing.journal import BatchEntry, batch_entry, exhausted_entry
from duesweep.tombstone import BatchClock


def _finish_one_of_each(
    session: TaskSession, run: SweepRun, rows: list[DelayedRow]
) -> tuple[Outcomes, int]:
    claim = session.claim(run, [row.key for row in rows])
    by_key = {m.key: m for m in claim.messages}
    delivered, failing, exhausted, to_error = (by_key[row.key] for row in rows)
    error = QueueNotFoundError('There is no queue table "public"."Nowhere"')
    assert isinstance(to_error.headers, MessageError)
    outcomes = Outcomes(
        (Delivered(delivered, '"public"."Billing"'),),
        (Failed(failing, error, 3600),),
        (Exhausted(exhausted, error, None), Exhausted(to_error, to_error.headers, "error")),
    )
    session.finish(run, 7, outcomes, claim.server_us)
    return outcomes, claim.server_us


def _one_of_each(subject: StoreUnderTest) -> list[DelayedRow]:
    poison = DelayedRow(headers="{", body=b"\0\xff", due=subject.now() - steps.MINUTE)
    return [
        steps.row(subject),
        steps.row(subject, "Nowhere"),
        steps.row(subject, None, body=None),
        poison,
    ]


def test_finish_removes_counts_and_journals_in_the_claims_transaction(
    subject: StoreUnderTest,
) -> None:
    rows = _one_of_each(subject)
    run = steps.load(subject, *rows)

    with steps.batch(subject) as session:
        outcomes, server_us = _finish_one_of_each(session, run, rows)

    assert subject.waiting() == {rows[1].key}
    assert subject.attempts() == {rows[1].key: 1}
    clock = BatchClock(server_us, run.horizon.shift_us)
    assert subject.journal(run) == [
        exhausted_entry(7, outcomes.exhausted[0], rows[2], clock, subject.own_queue),
        exhausted_entry(7, outcomes.exhausted[1], rows[3], clock, subject.own_queue),
        batch_entry(7, outcomes, clock, subject.own_queue),
    ]


def test_finish_that_is_rolled_back_never_happened(subject: StoreUnderTest) -> None:
    rows = _one_of_each(subject)
    run = steps.load(subject, *rows)

    with subject.store.open_task() as session, rolled_back(session):
        _finish_one_of_each(session, run, rows)
        assert session.grant_exhausted(run, 2, 10) == 2

    assert subject.waiting() == {row.key for row in rows}
    assert subject.attempts() == {}
    assert subject.journal(run) == []
    assert subject.counters(run) == (0, 0)
    assert set(steps.claimable(subject, run, *rows)) == {row.key for row in rows}


def test_others_see_nothing_of_a_batch_before_it_commits(subject: StoreUnderTest) -> None:
    rows = _one_of_each(subject)
    run = steps.load(subject, *rows)

    with steps.batch(subject) as session:
        _finish_one_of_each(session, run, rows)

        assert subject.waiting() == {row.key for row in rows}
        assert subject.attempts() == {}
        assert subject.journal(run) == []
        assert steps.claimable(subject, run, *rows) == []


def test_message_that_leaves_takes_its_retry_counter_along(subject: StoreUnderTest) -> None:
    delivered, exhausted, other = steps.row(subject), steps.row(subject), steps.row(subject)
    run = steps.load(subject, delivered, exhausted, other)
    for row in (delivered, exhausted, other):
        steps.fail(subject, run, row)
    subject.ripen()

    with steps.batch(subject) as session:
        claim = session.claim(run, [delivered.key, exhausted.key])
        by_key = {m.key: m for m in claim.messages}
        gone = Exhausted(by_key[exhausted.key], QueueNotFoundError("none"), None)
        outcomes = Outcomes((Delivered(by_key[delivered.key], "Billing"),), (), (gone,))
        session.finish(run, 0, outcomes, claim.server_us)

    assert subject.waiting() == {other.key}
    assert subject.attempts() == {other.key: 1}
    (entry,) = [e for e in subject.journal(run) if isinstance(e, BatchEntry) and e.dispatched]
    assert entry.attempts_changed
    assert entry.outcomes is not None
    assert tombstone.decode(entry.outcomes).to_pylist()[0]["attempts"] == 2


def test_delivery_at_the_first_attempt_leaves_the_retry_counters_alone(
    subject: StoreUnderTest,
) -> None:
    run = steps.load(subject, row := steps.row(subject))

    with steps.batch(subject) as session:
        claim = session.claim(run, [row.key])
        session.finish(run, 0, steps.delivered(*claim.messages), claim.server_us)

    (entry,) = subject.journal(run)
    assert isinstance(entry, BatchEntry)
    assert not entry.attempts_changed


def test_text_that_no_column_holds_does_not_spoil_the_account(subject: StoreUnderTest) -> None:
    strange = {MESSAGE_ID: "a\0b", "NServiceBus.EnclosedMessageTypes": "A\0"}
    rows = [steps.row(subject, "No\0where", more=strange) for _ in range(3)]
    run = steps.load(subject, *rows)
    error = QueueNotFoundError("There is no queue \0")

    with steps.batch(subject) as session:
        claim = session.claim(run, [row.key for row in rows])
        delivered, failing, exhausted = claim.messages
        outcomes = Outcomes(
            (Delivered(delivered, "Billing"),),
            (Failed(failing, error, 3600),),
            (Exhausted(exhausted, error, None),),
        )
        session.finish(run, 0, outcomes, claim.server_us)

    assert subject.attempts() == {failing.key: 1}
    assert len(subject.journal(run)) == 2


def test_savepoint_that_is_rolled_back_keeps_the_claim_before_it(subject: StoreUnderTest) -> None:
    run = steps.load(subject, row := steps.row(subject))
    with steps.batch(subject) as session:
        claim = session.claim(run, [row.key])

        with rolled_back(session):
            pass

        assert steps.claimable(subject, run, row) == []
        session.finish(run, 0, steps.delivered(*claim.messages), claim.server_us)

    assert subject.waiting() == set()


def test_savepoint_that_is_rolled_back_undoes_what_came_after_it(subject: StoreUnderTest) -> None:
    first, second = steps.row(subject), steps.row(subject)
    run = steps.load(subject, first, second)
    with steps.batch(subject) as session:
        claim = session.claim(run, [first.key])
        session.finish(run, 0, steps.delivered(*claim.messages), claim.server_us)

        with rolled_back(session):
            claim = session.claim(run, [second.key])
            session.finish(run, 0, steps.delivered(*claim.messages), claim.server_us)

    assert subject.waiting() == {second.key}
    assert len(subject.journal(run)) == 1
