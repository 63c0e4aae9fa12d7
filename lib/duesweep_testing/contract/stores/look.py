"""Tests of an operator's look, for stores that allow it."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from duesweep.core.change import DueSpan, WaitingMessage
from duesweep.core.message import Message
from duesweep.core.world import instant_of
from duesweep_testing.builders import DelayedRow
from duesweep_testing.contract.stores import steps
from duesweep_testing.contract.subjects import StoreUnderTest
from duesweep_testing.sweeps import open_sweep

# More than any page has.
MANY = 2_500


class LookContract:
    """Waiting messages are shown as a claim would return them, without bodies and locks."""

    def test_nothing_is_shown_where_nothing_waits(self, subject: StoreUnderTest) -> None:
        assert shown(subject) == []

    def test_earliest_due_comes_first_and_bodies_are_left_out(
        self, subject: StoreUnderTest
    ) -> None:
        later, earlier = subject.load([steps.row(subject), steps.row(subject, None, body=b"four")])

        found = shown(subject)

        assert [one.message for one in found] == [
            without_body(subject, earlier),
            without_body(subject, later),
        ]
        assert [one.body_bytes for one in found] == [4, len(later.body or b"")]
        assert [one.due for one in found] == [instant(subject, earlier), instant(subject, later)]
        assert all(one.lock_key for one in found)
        assert [(one.next_attempt_at, one.error) for one in found] == [(None, None)] * 2

    def test_message_in_back_off_is_shown_with_its_error(self, subject: StoreUnderTest) -> None:
        run, [row] = steps.load(subject, steps.row(subject))
        before = subject.server_time()
        steps.fail(subject, run, row)

        (found,) = shown(subject)

        assert found.message == without_body(subject, row, attempts=1)
        assert found.error == "There is no queue"
        assert found.next_attempt_at is not None
        wait = found.next_attempt_at - before
        assert timedelta(minutes=59) < wait < timedelta(minutes=61)

    def test_poison_is_shown_as_it_is_stored(self, subject: StoreUnderTest) -> None:
        (row,) = subject.load([steps.poison(subject)])

        (found,) = shown(subject)

        expected = without_body(subject, row)
        assert (found.message.key, found.message.headers_text) == (row.key, expected.headers_text)
        assert type(found.message.headers) is type(expected.headers)

    def test_span_begins_at_its_start_and_ends_before_its_end(
        self, subject: StoreUnderTest
    ) -> None:
        rows = subject.load([steps.row(subject) for _ in range(4)])
        dues = sorted(instant(subject, row) for row in rows)

        found = shown(subject, DueSpan(dues[1], dues[3]))

        assert [one.due for one in found] == dues[1:3]
        assert [one.due for one in shown(subject, DueSpan(start=dues[3]))] == dues[3:]
        assert [one.due for one in shown(subject, DueSpan(end=dues[1]))] == dues[:1]

    def test_infinite_due_comes_last_and_is_in_no_span_with_an_end(
        self, subject: StoreUnderTest
    ) -> None:
        if not subject.abilities.has_infinite_due:
            pytest.skip("it has no infinite Due")
        never, row = subject.load([steps.row(subject, due="infinity"), steps.row(subject)])

        assert [one.message.key for one in shown(subject)] == [row.key, never.key]
        assert [one.due for one in shown(subject)][1:] == [None]
        end = DueSpan(end=instant(subject, row) + timedelta(days=1))
        assert [one.message.key for one in shown(subject, end)] == [row.key]

    def test_many_of_one_due_come_each_once(self, subject: StoreUnderTest) -> None:
        row = steps.row(subject)
        rows = subject.load([replace(steps.row(subject), due=row.due) for _ in range(MANY)])

        with steps.operator(subject) as session, session.people.look(DueSpan()) as pages:
            sizes, keys = [], set()
            for page in pages:
                sizes.append(len(page))
                keys |= {one.message.key for one in page}

        assert sum(sizes) == MANY
        assert max(sizes) < MANY
        assert keys == {row.key for row in rows}

    def test_pages_need_not_be_read_to_the_end(self, subject: StoreUnderTest) -> None:
        due = steps.row(subject).due
        subject.load([replace(steps.row(subject), due=due) for _ in range(MANY)])

        with steps.operator(subject) as session:
            with session.people.look(DueSpan()) as pages:
                next(pages)

            assert sum(session.people.count_waiting([])) == MANY

    def test_message_is_found_by_its_key_with_its_body(self, subject: StoreUnderTest) -> None:
        _, row = subject.load([steps.row(subject), steps.row(subject, body=b"\x00\xff")])

        with steps.operator(subject) as session:
            (found,) = session.people.find([row.key], with_body=True)
            (bodiless,) = session.people.find([row.key])

        assert found.message == subject.message(row)
        assert bodiless.message == without_body(subject, row)
        assert (found.body_bytes, bodiless.body_bytes) == (2, 2)
        assert found.lock_key in {one.lock_key for one in shown(subject)}

    def test_keys_that_are_not_stored_or_cannot_be_keys_find_nothing(
        self, subject: StoreUnderTest
    ) -> None:
        (row,) = subject.load([steps.row(subject)])
        subject.load([steps.row(subject)])
        other = DelayedRow().key

        with steps.operator(subject) as session:
            assert list(session.people.find([])) == []
            assert list(session.people.find([other, "", "'", "x" * 1_000])) == []
            assert [one.message.key for one in session.people.find([other, row.key])] == [row.key]

    def test_messages_are_counted_between_instants(self, subject: StoreUnderTest) -> None:
        rows = subject.load([steps.row(subject) for _ in range(5)])
        dues = sorted(instant(subject, row) for row in rows)

        with steps.operator(subject) as session:
            assert list(session.people.count_waiting([])) == [5]
            assert list(session.people.count_waiting([dues[0]])) == [0, 5]
            assert list(session.people.count_waiting([dues[1], dues[4]])) == [1, 3, 1]

    def test_infinite_due_is_counted_last(self, subject: StoreUnderTest) -> None:
        if not subject.abilities.has_infinite_due:
            pytest.skip("it has no infinite Due")
        subject.load([steps.row(subject, due="infinity")])

        with steps.operator(subject) as session:
            assert list(session.people.count_waiting([subject.server_time()])) == [0, 1]

    def test_message_that_a_sweep_holds_is_shown_without_a_wait(
        self, subject: StoreUnderTest
    ) -> None:
        run, [row] = steps.load(subject, steps.row(subject))

        with steps.batch(subject) as session:
            steps.claim(subject, session, run, row)

            assert [one.message.key for one in shown(subject)] == [row.key]
            with steps.operator(subject) as other:
                assert [one.message.key for one in other.people.find([row.key])] == [row.key]
                assert sum(other.people.count_waiting([])) == 1

    def test_sweep_claims_and_removes_what_is_being_looked_at(
        self, subject: StoreUnderTest
    ) -> None:
        due = steps.row(subject).due
        rows = subject.load([replace(steps.row(subject), due=due) for _ in range(MANY)])
        run = open_sweep(subject.store)

        with steps.operator(subject) as session, session.people.look(DueSpan()) as pages:
            next(pages)
            with steps.batch(subject) as batch:
                claim = steps.claim(subject, batch, run, rows[0], rows[-1])
                batch.finish(run, 0, steps.delivered(*claim.messages), claim.server_us)

            assert len(subject.waiting()) == MANY - 2


def shown(subject: StoreUnderTest, span: DueSpan | None = None) -> list[WaitingMessage]:
    """All that is shown."""
    with steps.operator(subject) as session, session.people.look(span or DueSpan()) as pages:
        return [one for page in pages for one in page]


def without_body(subject: StoreUnderTest, row: DelayedRow, attempts: int = 0) -> Message:
    """The message of a row, as it is shown."""
    return subject.message(row, attempts)._replace(body=None)


def instant(subject: StoreUnderTest, row: DelayedRow) -> datetime:
    """The instant at which a row is due."""
    instant_us = subject.message(row).instant_us
    assert instant_us is not None
    return instant_of(instant_us)
