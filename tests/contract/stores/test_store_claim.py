"""What a claim locks, skips, releases and returns."""

from datetime import UTC, datetime, timedelta

import pytest
from contract import steps
from contract.store_subjects import StoreUnderTest
from contract.transactions import rolled_back

from duesweep import tombstone
from duesweep.errors import (
    MessageError,
    UnreadableHeadersError,
)
from duesweep.headers.json import without_forward_destination
from duesweep.testing.builders import DelayedRow, delayed_row, message
from duesweep.tombstone import BatchClock


def test_claim_returns_messages_as_they_are_stored_in_the_order_of_their_due(
    subject: StoreUnderTest,
) -> None:
    late = steps.row(subject, due=subject.now() - 2 * steps.MINUTE)
    later = steps.row(subject, None, due=subject.now() - 3 * steps.MINUTE, body=None)
    last = steps.row(subject, due=subject.now() - steps.MINUTE, body=b"")
    run = steps.load(subject, last, late, later)

    with steps.batch(subject) as session:
        claim = session.claim(run, [late.key, last.key, later.key])

    assert claim.messages == tuple(message(row) for row in (later, late, last))


def test_claim_tells_the_servers_time(subject: StoreUnderTest) -> None:
    run = steps.load(subject, row := steps.row(subject))

    with steps.batch(subject) as session:
        claim = session.claim(run, [row.key])

    passed_us = claim.server_us - tombstone.micros(run.horizon.server_time)
    assert 0 <= passed_us < 60_000_000
    (late_ms,) = BatchClock(claim.server_us, run.horizon.shift_us).lateness_ms([row.due_us])
    assert late_ms is not None
    assert 60_000 <= late_ms < 120_000


@pytest.mark.parametrize(
    "body",
    [None, b"", b"\0", bytes(range(256)), b"x" * 300_001],
    ids=["none", "empty", "one NUL", "every byte", "300 kB and one"],
)
def test_claim_returns_any_body_as_it_is(subject: StoreUnderTest, body: bytes | None) -> None:
    run = steps.load(subject, row := steps.row(subject, body=body))

    with steps.batch(subject) as session:
        (claimed,) = session.claim(run, [row.key]).messages

    assert claimed.body == body


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a":1}', r'{"a":"\ud800"}', "\N{GRINNING FACE}"])
def test_claim_returns_unreadable_headers_with_the_reason_and_as_they_are(
    subject: StoreUnderTest, text: str
) -> None:
    row = DelayedRow(headers=text, due=subject.now() - steps.MINUTE)
    run = steps.load(subject, row)

    with steps.batch(subject) as session:
        (claimed,) = session.claim(run, [row.key]).messages

    assert isinstance(claimed.headers, UnreadableHeadersError)
    assert (claimed.headers_text, claimed.destination, claimed.body) == (text, None, row.body)


def test_claim_returns_headers_to_be_delivered_without_the_forward_destination(
    subject: StoreUnderTest,
) -> None:
    more = {"Grüße": '\N{CHECK MARK} \\ " \t /', "Nullable": None, "Empty": ""}
    run = steps.load(subject, row := steps.row(subject, more=more))

    with steps.batch(subject) as session:
        (claimed,) = session.claim(run, [row.key]).messages

    assert claimed.destination == "Billing"
    assert claimed.headers_text == without_forward_destination(row.headers)
    assert not isinstance(claimed.headers, MessageError)
    assert {name: claimed.headers[name] for name in more} == more


def test_claim_skips_what_another_session_holds_and_waits_for_nobody(
    subject: StoreUnderTest,
) -> None:
    held, free = steps.row(subject), steps.row(subject)
    run = steps.load(subject, held, free)

    with steps.batch(subject) as other:
        assert steps.keys(other.claim(run, [held.key])) == [held.key]

        assert steps.claimable(subject, run, held, free) == [free.key]


def test_claim_of_another_sweep_skips_what_is_held_as_well(subject: StoreUnderTest) -> None:
    run = steps.load(subject, row := steps.row(subject))
    other_run = subject.open_sweep()

    with steps.batch(subject) as other:
        other.claim(other_run, [row.key])

        assert steps.claimable(subject, run, row) == []


def test_what_a_session_held_is_free_again_when_its_transaction_ends(
    subject: StoreUnderTest,
) -> None:
    run = steps.load(subject, row := steps.row(subject))
    with subject.store.open_task() as other:
        with other.transaction():
            other.claim(run, [row.key])
        assert steps.claimable(subject, run, row) == [row.key]
        with rolled_back(other):
            other.claim(run, [row.key])

        assert steps.claimable(subject, run, row) == [row.key]


def test_claim_leaves_a_message_that_was_rescheduled_after_the_plan(
    subject: StoreUnderTest,
) -> None:
    row, other = steps.row(subject), steps.row(subject)
    run = steps.load(subject, row, other)

    subject.reschedule(row.key, subject.now() + timedelta(hours=1))

    assert steps.claimable(subject, run, row, other) == [other.key]
    assert subject.waiting() == {row.key, other.key}


def test_message_is_due_before_the_horizon_and_not_at_it(subject: StoreUnderTest) -> None:
    run = subject.open_sweep()
    at = delayed_row(due=run.horizon.before)
    before = delayed_row(due=run.horizon.before - timedelta(microseconds=1))
    subject.load([at, before])

    assert steps.claimable(subject, run, at, before) == [before.key]


def test_message_due_since_for_ever_is_claimed_and_one_due_never_is_not(
    subject: StoreUnderTest,
) -> None:
    since_ever, never = delayed_row(due="-infinity"), delayed_row(due="infinity")
    run = steps.load(subject, since_ever, never)

    with steps.batch(subject) as session:
        claim = session.claim(run, [since_ever.key, never.key])

    assert [(m.key, m.due_us) for m in claim.messages] == [(since_ever.key, None)]


def test_message_due_since_the_year_one_is_claimed(subject: StoreUnderTest) -> None:
    row = delayed_row(due=datetime(1, 1, 2, tzinfo=UTC))
    run = steps.load(subject, row)

    with steps.batch(subject) as session:
        (claimed,) = session.claim(run, [row.key]).messages

    assert claimed.due_us == row.due_us


def test_claim_of_what_is_gone_of_nothing_and_of_one_key_twice(subject: StoreUnderTest) -> None:
    run = steps.load(subject, row := steps.row(subject))

    assert steps.claimable(subject, run, delayed_row()) == []
    assert steps.claimable(subject, run) == []
    assert steps.claimable(subject, run, row, row) == [row.key]


def test_claim_releases_what_another_session_has_counted_a_failure_for(
    subject: StoreUnderTest,
) -> None:
    failing, other = steps.row(subject), steps.row(subject)
    run = steps.load(subject, failing, other)
    second_run = subject.open_sweep()

    steps.fail(subject, run, failing)

    assert steps.claimable(subject, second_run, failing, other) == [other.key]
    assert subject.attempts() == {failing.key: 1}


def test_ripe_message_is_claimed_with_its_failures(subject: StoreUnderTest) -> None:
    run = steps.load(subject, row := steps.row(subject))
    for _ in range(3):
        steps.fail(subject, run, row)
        subject.ripen()

    with steps.batch(subject) as session:
        (claimed,) = session.claim(run, [row.key]).messages

    assert claimed.attempts == 3
    assert subject.attempts() == {row.key: 3}


def test_message_that_fails_again_waits_again(subject: StoreUnderTest) -> None:
    run = steps.load(subject, row := steps.row(subject))
    steps.fail(subject, run, row)
    subject.ripen()
    assert steps.claimable(subject, run, row) == [row.key]

    steps.fail(subject, run, row)

    assert steps.claimable(subject, run, row) == []


def test_message_without_backoff_is_ripe_at_once(subject: StoreUnderTest) -> None:
    run = steps.load(subject, row := steps.row(subject))
    with steps.batch(subject) as session:
        claim = session.claim(run, [row.key])
        session.finish(run, 0, steps.failed(*claim.messages, retry_seconds=0), claim.server_us)

    assert steps.claimable(subject, run, row) == [row.key]
