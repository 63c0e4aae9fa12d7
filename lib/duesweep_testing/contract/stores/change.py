"""Tests of changes by an operator's command, for stores that allow it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from duesweep.core.change import Change, ChangeKind, WaitingMessage
from duesweep.core.errors import MessageError, SweepClosedError
from duesweep.core.headers import Headers
from duesweep.core.message import Message
from duesweep.core.world import instant_of, micros
from duesweep.stores.messages import NewMessage
from duesweep.stores.people import OperatorTask
from duesweep.stores.sweeps import SweepRun
from duesweep.stores.task import Claim
from duesweep_testing.builders import DelayedRow
from duesweep_testing.contract.stores import steps
from duesweep_testing.contract.subjects import StoreUnderTest
from duesweep_testing.journal import ChangeEntry
from duesweep_testing.sweeps import close_sweep, open_command, open_sweep, roll_back

HOUR = timedelta(hours=1)


class ChangeContract:
    """A command holds messages, changes them and journals that: all or nothing."""

    def test_message_is_held_whatever_its_due_and_its_back_off(
        self, subject: StoreUnderTest
    ) -> None:
        run, [failed, later] = steps.load(
            subject, steps.row(subject), steps.row(subject, due=subject.now() + HOUR)
        )
        steps.fail(subject, run, failed)

        with changing(subject) as (session, command):
            claim = held(subject, session, command, failed, later)

        by_key = {message.key: message for message in claim.messages}
        assert by_key == {
            failed.key: subject.message(failed, attempts=1),
            later.key: subject.message(later),
        }
        assert (claim.skipped, claim.gone, claim.later) == (0, 0, 0)

    def test_message_that_a_sweep_holds_is_skipped_and_told(self, subject: StoreUnderTest) -> None:
        steps.need_skipping(subject)
        run, [taken, free] = steps.load(subject, steps.row(subject), steps.row(subject))

        with steps.batch(subject) as sweep:
            steps.claim(subject, sweep, run, taken)
            with changing(subject) as (session, command):
                claim = held(subject, session, command, taken, free)

        assert (steps.keys(claim), claim.skipped, claim.gone) == ([free.key], 1, 0)

    def test_sweep_skips_what_a_command_holds(self, subject: StoreUnderTest) -> None:
        steps.need_skipping(subject)
        run, [row, other] = steps.load(subject, steps.row(subject), steps.row(subject))

        with changing(subject) as (session, command):
            held(subject, session, command, row)

            assert steps.claimable(subject, run, row, other) == [other.key]

    def test_command_that_was_closed_holds_nothing(self, subject: StoreUnderTest) -> None:
        _, [row] = steps.load(subject, steps.row(subject))
        command = open_command(subject.store)
        close_sweep(subject.store, command)

        with pytest.raises(SweepClosedError), batch(subject) as session:
            held(subject, session, command, row)

    def test_cancelled_message_leaves_with_its_counter_and_is_journalled_whole(
        self, subject: StoreUnderTest
    ) -> None:
        run, [row, failed, other] = steps.load(subject, *[steps.row(subject) for _ in range(3)])
        steps.fail(subject, run, failed)
        steps.fail(subject, run, other)

        with changing(subject) as (session, command):
            claim = held(subject, session, command, row, failed)
            session.cancel(command, claim.messages, claim.server_us)
            assert subject.waiting() == {row.key, failed.key, other.key}
            assert subject.changes(command) == []

        assert subject.waiting() == {other.key}
        assert subject.attempts() == {other.key: 1}
        entries = subject.changes(command)
        assert {entry.message_key: entry for entry in entries} == {
            row.key: cancelled(subject, row, claim.server_us),
            failed.key: cancelled(subject, failed, claim.server_us, attempts=1),
        }

    def test_poison_is_cancelled_as_it_is_stored(self, subject: StoreUnderTest) -> None:
        (row,) = subject.load([steps.poison(subject, body=b"\0\xff")])

        (entry,) = cancel(subject, row)

        assert subject.waiting() == set()
        assert (entry.headers_text, entry.body) == (subject.stored_headers(row), b"\0\xff")
        assert entry.message_id is None

    def test_change_that_is_rolled_back_never_happened(self, subject: StoreUnderTest) -> None:
        run, [one, two] = steps.load(subject, steps.row(subject), steps.row(subject))
        command = open_command(subject.store)
        before = found(subject, one, two)

        with opened(subject) as session, roll_back(session):
            claim = held(subject, session, command, one, two)
            session.cancel(command, claim.messages[:1], claim.server_us)
            due = subject.server_time() + HOUR
            session.reschedule(command, [(claim.messages[1], due)], claim.server_us)

        assert found(subject, one, two) == before
        assert subject.changes(command) == []
        assert set(steps.claimable(subject, run, one, two)) == {one.key, two.key}

    def test_two_commands_cancel_a_message_once(self, subject: StoreUnderTest) -> None:
        steps.need_skipping(subject)
        (row,) = subject.load([steps.row(subject)])
        (place,) = [one.lock_key for one in found(subject, row)]
        second = open_command(subject.store)

        with opened(subject) as other, changing(subject) as (session, first):
            claim = held(subject, session, first, row)
            session.cancel(first, claim.messages, claim.server_us)
            with other.transaction():
                meanwhile = other.hold(second, [place])
        with batch(subject) as session:
            afterwards = session.hold(second, [place])

        assert (meanwhile.messages, meanwhile.skipped, meanwhile.gone) == ((), 1, 0)
        assert (afterwards.messages, afterwards.skipped, afterwards.gone) == ((), 0, 1)
        assert len(subject.changes(first)) == 1
        assert subject.changes(second) == []

    def test_rescheduled_message_is_due_at_the_instant_and_keeps_all_else(
        self, subject: StoreUnderTest
    ) -> None:
        (row,) = subject.load([steps.row(subject)])
        (before,) = found(subject, row)
        due = subject.server_time().replace(microsecond=0) + 30 * HOUR

        command = reschedule(subject, row, due)

        (after,) = found(subject, row)
        assert after.due is not None
        assert before.due is not None
        assert abs(after.due - due) <= subject.abilities.tick
        assert after.message._replace(due_us=0, instant_us=0) == before.message._replace(
            due_us=0, instant_us=0
        )
        (entry,) = subject.changes(command)
        assert (entry.change, entry.message_key) == ("rescheduled", row.key)
        assert (entry.due_before_us, entry.due_after_us) == (micros(before.due), micros(after.due))
        assert (entry.headers_text, entry.body, entry.new_key) == (None, None, None)

    def test_message_that_is_rescheduled_to_the_past_is_due(self, subject: StoreUnderTest) -> None:
        (row,) = subject.load([steps.row(subject, due=subject.now() + HOUR)])

        reschedule(subject, row, subject.server_time().replace(microsecond=0) - steps.MINUTE)

        moved = as_it_waits(subject, row)
        assert steps.claimable(subject, open_sweep(subject.store), moved) == [row.key]

    def test_message_in_back_off_is_tried_at_its_new_due_and_keeps_its_failures(
        self, subject: StoreUnderTest
    ) -> None:
        run, [row] = steps.load(subject, steps.row(subject))
        steps.fail(subject, run, row)

        reschedule(subject, row, subject.server_time().replace(microsecond=0) - steps.MINUTE)

        assert subject.attempts() == {row.key: 1}
        moved, run = as_it_waits(subject, row), open_sweep(subject.store)
        with steps.batch(subject) as sweep:
            claim = steps.claim(subject, sweep, run, moved)
        assert [message.attempts for message in claim.messages] == [1]

    @pytest.mark.parametrize("body", [None, b"", b"\0\xff"], ids=["none", "empty", "bytes"])
    @pytest.mark.parametrize("destination", ["Billing", "My.Own"])
    def test_cancelled_message_comes_back_to_the_byte(
        self, subject: StoreUnderTest, destination: str, body: bytes | None
    ) -> None:
        more: Headers = {"Zürich/Genf": "\N{GRINNING FACE}", "Nullable": None, "A": ' "b" '}
        (row,) = subject.load([steps.row(subject, destination, body=body, more=more)])
        (gone,) = cancel(subject, row)
        due = subject.server_time().replace(microsecond=0) + HOUR

        key, command = put_back(subject, gone, row, due)

        (entry,) = subject.changes(command)
        assert entry.due_after_us is not None
        assert abs(instant_of(entry.due_after_us) - due) <= subject.abilities.tick
        assert (entry.change, entry.message_key, entry.new_key) == ("restored", row.key, key)
        assert entry.of == "some command"
        assert subject.waiting() == {key}
        with steps.operator(subject) as session:
            (back,) = session.people.find([key], with_body=True)
        assert back.due is not None
        assert micros(back.due) == entry.due_after_us
        expected = subject.message(row)
        assert back.message == expected._replace(
            key=key, due_us=back.message.due_us, instant_us=entry.due_after_us
        )
        (again,) = cancel(subject, DelayedRow(key=key))
        assert (again.headers_text, again.body) == (gone.headers_text, gone.body)

    def test_change_of_a_message_outside_the_store_is_journalled(
        self, subject: StoreUnderTest
    ) -> None:
        (row,) = subject.load([steps.row(subject)])
        message = subject.message(row, attempts=5)
        change = Change(ChangeKind.REPLAYED, message, of="a sweep")

        with changing(subject) as (session, command):
            server_us = session.hold(command, []).server_us
            session.journal_changes(command, [change], server_us)

        (entry,) = subject.changes(command)
        assert (entry.change, entry.new_key, entry.of) == ("replayed", None, "a sweep")
        assert (entry.attempts, entry.changed_us) == (5, server_us)
        assert (entry.message_id, entry.body_bytes) == (message.message_id, message.body_bytes)


@contextmanager
def opened(subject: StoreUnderTest) -> Iterator[OperatorTask]:
    """A session; skips the test if the store has none."""
    with steps.operators(subject).open_changes() as session:
        yield session


@contextmanager
def batch(subject: StoreUnderTest) -> Iterator[OperatorTask]:
    """A session with an open transaction."""
    with opened(subject) as session, session.transaction():
        yield session


@contextmanager
def changing(subject: StoreUnderTest) -> Iterator[tuple[OperatorTask, SweepRun]]:
    """A session with an open transaction, and a new command."""
    steps.operators(subject)
    command = open_command(subject.store)
    with batch(subject) as session:
        yield session, command


def found(subject: StoreUnderTest, *rows: DelayedRow) -> list[WaitingMessage]:
    """The rows as they wait, in their order."""
    with steps.operator(subject) as session:
        by_key = {one.message.key: one for one in session.people.find([row.key for row in rows])}
    return [by_key[row.key] for row in rows]


def as_it_waits(subject: StoreUnderTest, row: DelayedRow) -> DelayedRow:
    """The row with the Due that it has now."""
    (waiting,) = found(subject, row)
    due_us = waiting.message.due_us
    assert due_us is not None
    return replace(row, due=instant_of(due_us))


def held(
    subject: StoreUnderTest, session: OperatorTask, command: SweepRun, *rows: DelayedRow
) -> Claim:
    """Hold these rows."""
    return session.hold(command, [one.lock_key for one in found(subject, *rows)])


def cancel(subject: StoreUnderTest, row: DelayedRow) -> Sequence[ChangeEntry]:
    """Cancel a row. Returns the journal's entries."""
    with changing(subject) as (session, command):
        claim = held(subject, session, command, row)
        session.cancel(command, claim.messages, claim.server_us)
    return subject.changes(command)


def reschedule(subject: StoreUnderTest, row: DelayedRow, due: datetime) -> SweepRun:
    """Reschedule a row. Returns the command."""
    with changing(subject) as (session, command):
        claim = held(subject, session, command, row)
        session.reschedule(command, [(claim.messages[0], due)], claim.server_us)
    return command


def put_back(
    subject: StoreUnderTest, gone: ChangeEntry, row: DelayedRow, due: datetime
) -> tuple[str, SweepRun]:
    """Store a row again that was cancelled. Returns its new key, and the command."""
    message: Message = subject.message(row)
    assert not isinstance(message.headers, MessageError)
    new = NewMessage(message.destination, message.headers, gone.body, due, gone.headers_text)
    change = Change(ChangeKind.RESTORED, message, of="some command")
    with changing(subject) as (session, command):
        server_us = session.hold(command, []).server_us
        (key,) = session.put_back(command, [(change, new)], server_us)
    return key, command


def cancelled(
    subject: StoreUnderTest, row: DelayedRow, server_us: int, attempts: int = 0
) -> ChangeEntry:
    """The expected entry of the journal for a cancelled row."""
    message = subject.message(row, attempts)
    return ChangeEntry(
        change="cancelled",
        changed_us=server_us,
        message_key=row.key,
        message_id=message.message_id,
        message_type=message.message_type,
        destination=message.destination,
        due_before_us=message.instant_us,
        due_after_us=None,
        of=None,
        new_key=None,
        attempts=attempts,
        body_bytes=message.body_bytes,
        headers_text=subject.stored_headers(row),
        body=row.body,
    )
