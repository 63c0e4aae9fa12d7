"""The contract of a task session, kept by every store."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from contract.stores import MemoryUnderTest, PostgreSqlUnderTest, StoreUnderTest
from contract.transactions import rolled_back

from duesweep import tombstone
from duesweep.dispatch import DispatchJob, dispatch_slice
from duesweep.errors import (
    MessageError,
    QueueNotFoundError,
    SweepClosedError,
    UnreadableHeadersError,
)
from duesweep.headers.json import without_forward_destination
from duesweep.message import MESSAGE_ID, Message
from duesweep.outcome import Delivered, Exhausted, Failed, Outcomes
from duesweep.policy import BatchLimits, Retry
from duesweep.stores.base import Claim, SweepRun, TaskSession
from duesweep.testing.builders import DelayedRow, delayed_row, message
from duesweep.testing.journal import BatchEntry, SliceEntry, batch_entry, exhausted_entry
from duesweep.testing.memory import MemoryStore
from duesweep.testing.memory_queue import MemoryQueue
from duesweep.tombstone import BatchClock

MINUTE = timedelta(minutes=1)
# How long somebody is watched who must wait: less than a session's lock time-out.
WHILE_SECONDS = 0.3
# Names that somebody has: blanks, dots, quotes, brackets, braces, percent signs, 63 characters.
ODD_ENDPOINT = 'Sales."Or\'ders".[%s].{delayed}'
ODD_SCHEMA = 'the "odd" one: 100%'
LONGEST = "Late.Ünd" + 54 * "x"

STORES = ("memory", "postgresql", "postgresql in New York, with odd names")


@pytest.fixture(params=STORES)
def subject(request: pytest.FixtureRequest) -> StoreUnderTest:
    """Each store in turn, empty."""
    if request.param == "memory":
        return MemoryUnderTest(MemoryStore(), MemoryQueue("Billing"))
    endpoint = request.getfixturevalue("endpoint")
    if "odd" in request.param:
        assert len(LONGEST.encode()) == 63
        database = endpoint.admin.info.dbname
        endpoint.execute(f"ALTER DATABASE {database} SET TimeZone = 'America/New_York'")
        endpoint.execute("SET TimeZone = 'America/New_York'")
        endpoint = endpoint.named(ODD_ENDPOINT, ODD_SCHEMA, LONGEST)
    return PostgreSqlUnderTest(endpoint.set_up("Billing"))


def _load(subject: StoreUnderTest, *rows: DelayedRow) -> SweepRun:
    """Store rows, with a Due of their own each, and open a sweep of them."""
    subject.load(rows)
    return subject.open_sweep()


def _row(subject: StoreUnderTest, destination: str | None = "Billing", **values: Any) -> DelayedRow:
    """A row that came due a minute ago."""
    return delayed_row(destination, **{"due": subject.now() - MINUTE} | values)


@contextmanager
def _batch(subject: StoreUnderTest) -> Iterator[TaskSession]:
    """A session with a transaction under way."""
    with subject.store.open_task() as session, session.transaction():
        yield session


def _claimed(subject: StoreUnderTest, run: SweepRun, *rows: DelayedRow) -> list[str]:
    """The keys that a session of its own can claim now."""
    with _batch(subject) as session:
        return _keys(session.claim(run, [row.key for row in rows]))


def _keys(claim: Claim) -> list[str]:
    return [m.key for m in claim.messages]


def _delivered(*messages: Message) -> Outcomes:
    return Outcomes(delivered=tuple(Delivered(m, "Billing") for m in messages))


def _failed(*messages: Message, retry_seconds: float = 3600) -> Outcomes:
    error = QueueNotFoundError("There is no queue")
    return Outcomes(failed=tuple(Failed(m, error, retry_seconds) for m in messages))


def _fail(subject: StoreUnderTest, run: SweepRun, row: DelayedRow) -> None:
    with _batch(subject) as session:
        claim = session.claim(run, [row.key])
        session.finish(run, 0, _failed(*claim.messages), claim.server_us)


# --- claim ---------------------------------------------------------------------------------------


def test_claim_returns_messages_as_they_are_stored_in_the_order_of_their_due(
    subject: StoreUnderTest,
) -> None:
    late = _row(subject, due=subject.now() - 2 * MINUTE)
    later = _row(subject, None, due=subject.now() - 3 * MINUTE, body=None)
    last = _row(subject, due=subject.now() - MINUTE, body=b"")
    run = _load(subject, last, late, later)

    with _batch(subject) as session:
        claim = session.claim(run, [late.key, last.key, later.key])

    assert claim.messages == tuple(message(row) for row in (later, late, last))


def test_claim_tells_the_servers_time(subject: StoreUnderTest) -> None:
    run = _load(subject, row := _row(subject))

    with _batch(subject) as session:
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
    run = _load(subject, row := _row(subject, body=body))

    with _batch(subject) as session:
        (claimed,) = session.claim(run, [row.key]).messages

    assert claimed.body == body


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a":1}', r'{"a":"\ud800"}', "\N{GRINNING FACE}"])
def test_claim_returns_unreadable_headers_with_the_reason_and_as_they_are(
    subject: StoreUnderTest, text: str
) -> None:
    row = DelayedRow(headers=text, due=subject.now() - MINUTE)
    run = _load(subject, row)

    with _batch(subject) as session:
        (claimed,) = session.claim(run, [row.key]).messages

    assert isinstance(claimed.headers, UnreadableHeadersError)
    assert (claimed.headers_text, claimed.destination, claimed.body) == (text, None, row.body)


def test_claim_returns_headers_to_be_delivered_without_the_forward_destination(
    subject: StoreUnderTest,
) -> None:
    more = {"Grüße": '\N{CHECK MARK} \\ " \t /', "Nullable": None, "Empty": ""}
    run = _load(subject, row := _row(subject, more=more))

    with _batch(subject) as session:
        (claimed,) = session.claim(run, [row.key]).messages

    assert claimed.destination == "Billing"
    assert claimed.headers_text == without_forward_destination(row.headers)
    assert not isinstance(claimed.headers, MessageError)
    assert {name: claimed.headers[name] for name in more} == more


def test_claim_skips_what_another_session_holds_and_waits_for_nobody(
    subject: StoreUnderTest,
) -> None:
    held, free = _row(subject), _row(subject)
    run = _load(subject, held, free)

    with _batch(subject) as other:
        assert _keys(other.claim(run, [held.key])) == [held.key]

        assert _claimed(subject, run, held, free) == [free.key]


def test_claim_of_another_sweep_skips_what_is_held_as_well(subject: StoreUnderTest) -> None:
    run = _load(subject, row := _row(subject))
    other_run = subject.open_sweep()

    with _batch(subject) as other:
        other.claim(other_run, [row.key])

        assert _claimed(subject, run, row) == []


def test_what_a_session_held_is_free_again_when_its_transaction_ends(
    subject: StoreUnderTest,
) -> None:
    run = _load(subject, row := _row(subject))
    with subject.store.open_task() as other:
        with other.transaction():
            other.claim(run, [row.key])
        assert _claimed(subject, run, row) == [row.key]
        with rolled_back(other):
            other.claim(run, [row.key])

        assert _claimed(subject, run, row) == [row.key]


def test_claim_leaves_a_message_that_was_rescheduled_after_the_plan(
    subject: StoreUnderTest,
) -> None:
    row, other = _row(subject), _row(subject)
    run = _load(subject, row, other)

    subject.reschedule(row.key, subject.now() + timedelta(hours=1))

    assert _claimed(subject, run, row, other) == [other.key]
    assert subject.waiting() == {row.key, other.key}


def test_message_is_due_before_the_horizon_and_not_at_it(subject: StoreUnderTest) -> None:
    run = subject.open_sweep()
    at = delayed_row(due=run.horizon.before)
    before = delayed_row(due=run.horizon.before - timedelta(microseconds=1))
    subject.load([at, before])

    assert _claimed(subject, run, at, before) == [before.key]


def test_message_due_since_for_ever_is_claimed_and_one_due_never_is_not(
    subject: StoreUnderTest,
) -> None:
    since_ever, never = delayed_row(due="-infinity"), delayed_row(due="infinity")
    run = _load(subject, since_ever, never)

    with _batch(subject) as session:
        claim = session.claim(run, [since_ever.key, never.key])

    assert [(m.key, m.due_us) for m in claim.messages] == [(since_ever.key, None)]


def test_message_due_since_the_year_one_is_claimed(subject: StoreUnderTest) -> None:
    row = delayed_row(due=datetime(1, 1, 2, tzinfo=UTC))
    run = _load(subject, row)

    with _batch(subject) as session:
        (claimed,) = session.claim(run, [row.key]).messages

    assert claimed.due_us == row.due_us


def test_claim_of_what_is_gone_of_nothing_and_of_one_key_twice(subject: StoreUnderTest) -> None:
    run = _load(subject, row := _row(subject))

    assert _claimed(subject, run, delayed_row()) == []
    assert _claimed(subject, run) == []
    assert _claimed(subject, run, row, row) == [row.key]


def test_claim_releases_what_another_session_has_counted_a_failure_for(
    subject: StoreUnderTest,
) -> None:
    failing, other = _row(subject), _row(subject)
    run = _load(subject, failing, other)
    second_run = subject.open_sweep()

    _fail(subject, run, failing)

    assert _claimed(subject, second_run, failing, other) == [other.key]
    assert subject.attempts() == {failing.key: 1}


def test_ripe_message_is_claimed_with_its_failures(subject: StoreUnderTest) -> None:
    run = _load(subject, row := _row(subject))
    for _ in range(3):
        _fail(subject, run, row)
        subject.ripen()

    with _batch(subject) as session:
        (claimed,) = session.claim(run, [row.key]).messages

    assert claimed.attempts == 3
    assert subject.attempts() == {row.key: 3}


def test_message_without_backoff_is_ripe_at_once(subject: StoreUnderTest) -> None:
    run = _load(subject, row := _row(subject))
    with _batch(subject) as session:
        claim = session.claim(run, [row.key])
        session.finish(run, 0, _failed(*claim.messages, retry_seconds=0), claim.server_us)

    assert _claimed(subject, run, row) == [row.key]


# --- savepoints ----------------------------------------------------------------------------------


def test_savepoint_that_is_rolled_back_keeps_the_claim_before_it(subject: StoreUnderTest) -> None:
    run = _load(subject, row := _row(subject))
    with _batch(subject) as session:
        claim = session.claim(run, [row.key])

        with rolled_back(session):
            pass

        assert _claimed(subject, run, row) == []
        session.finish(run, 0, _delivered(*claim.messages), claim.server_us)

    assert subject.waiting() == set()


def test_savepoint_that_is_rolled_back_undoes_what_came_after_it(subject: StoreUnderTest) -> None:
    first, second = _row(subject), _row(subject)
    run = _load(subject, first, second)
    with _batch(subject) as session:
        claim = session.claim(run, [first.key])
        session.finish(run, 0, _delivered(*claim.messages), claim.server_us)

        with rolled_back(session):
            claim = session.claim(run, [second.key])
            session.finish(run, 0, _delivered(*claim.messages), claim.server_us)

    assert subject.waiting() == {second.key}
    assert len(subject.journal(run)) == 1


# --- finish --------------------------------------------------------------------------------------


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
    poison = DelayedRow(headers="{", body=b"\0\xff", due=subject.now() - MINUTE)
    return [_row(subject), _row(subject, "Nowhere"), _row(subject, None, body=None), poison]


def test_finish_removes_counts_and_journals_in_the_claims_transaction(
    subject: StoreUnderTest,
) -> None:
    rows = _one_of_each(subject)
    run = _load(subject, *rows)

    with _batch(subject) as session:
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
    run = _load(subject, *rows)

    with subject.store.open_task() as session, rolled_back(session):
        _finish_one_of_each(session, run, rows)
        session.grant_exhausted(run, 2, 10)

    assert subject.waiting() == {row.key for row in rows}
    assert subject.attempts() == {}
    assert subject.journal(run) == []
    assert subject.counters(run) == (0, 0)
    assert set(_claimed(subject, run, *rows)) == {row.key for row in rows}


def test_others_see_nothing_of_a_batch_before_it_commits(subject: StoreUnderTest) -> None:
    rows = _one_of_each(subject)
    run = _load(subject, *rows)

    with _batch(subject) as session:
        _finish_one_of_each(session, run, rows)

        assert subject.waiting() == {row.key for row in rows}
        assert subject.attempts() == {}
        assert subject.journal(run) == []
        assert _claimed(subject, run, *rows) == []


def test_message_that_leaves_takes_its_retry_counter_along(subject: StoreUnderTest) -> None:
    delivered, exhausted, other = _row(subject), _row(subject), _row(subject)
    run = _load(subject, delivered, exhausted, other)
    for row in (delivered, exhausted, other):
        _fail(subject, run, row)
    subject.ripen()

    with _batch(subject) as session:
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
    run = _load(subject, row := _row(subject))

    with _batch(subject) as session:
        claim = session.claim(run, [row.key])
        session.finish(run, 0, _delivered(*claim.messages), claim.server_us)

    (entry,) = subject.journal(run)
    assert isinstance(entry, BatchEntry)
    assert not entry.attempts_changed


def test_text_that_no_column_holds_does_not_spoil_the_account(subject: StoreUnderTest) -> None:
    strange = {MESSAGE_ID: "a\0b", "NServiceBus.EnclosedMessageTypes": "A\0"}
    rows = [_row(subject, "No\0where", more=strange) for _ in range(3)]
    run = _load(subject, *rows)
    error = QueueNotFoundError("There is no queue \0")

    with _batch(subject) as session:
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


# --- the limit of exhausted messages --------------------------------------------------------------


def test_sweep_grants_exhausted_messages_up_to_its_limit(subject: StoreUnderTest) -> None:
    run = subject.open_sweep()

    def grant(wanted: int) -> int:
        with _batch(subject) as session:
            return session.grant_exhausted(run, wanted, limit=5)

    assert [grant(3), grant(1), grant(3), grant(2)] == [3, 1, 1, 0]
    assert subject.counters(run) == (5, 4)


def test_limit_is_each_sweeps_own(subject: StoreUnderTest) -> None:
    runs = [subject.open_sweep(), subject.open_sweep()]

    for run in runs:
        with _batch(subject) as session:
            assert session.grant_exhausted(run, 2, limit=2) == 2


def test_slices_that_exhaust_at_once_count_one_after_the_other(subject: StoreUnderTest) -> None:
    run = subject.open_sweep()

    def grant() -> int:
        with _batch(subject) as session:
            return session.grant_exhausted(run, 3, limit=5)

    with ThreadPoolExecutor() as pool:
        with _batch(subject) as session:
            first = session.grant_exhausted(run, 3, limit=5)
            second = pool.submit(grant)
            assert wait([second], timeout=WHILE_SECONDS).not_done
        assert (first, second.result(timeout=10)) == (3, 2)


# --- the fence -----------------------------------------------------------------------------------


def test_closed_sweep_claims_nothing_and_journals_nothing(subject: StoreUnderTest) -> None:
    run = _load(subject, row := _row(subject))
    other_run = subject.open_sweep()
    subject.close_sweep(run)

    with pytest.raises(SweepClosedError), _batch(subject) as session:
        session.claim(run, [row.key])
    with pytest.raises(SweepClosedError), subject.store.open_task() as session:
        session.end_slice(run, 0, 1, None)

    assert subject.journal(run) == []
    assert _claimed(subject, other_run, row) == [row.key]


def test_sweep_is_closed_only_when_its_batches_in_flight_have_ended(
    subject: StoreUnderTest,
) -> None:
    run = _load(subject, row := _row(subject))

    with ThreadPoolExecutor() as pool:
        with _batch(subject) as session:
            claim = session.claim(run, [row.key])
            closing = pool.submit(subject.close_sweep, run)
            assert wait([closing], timeout=WHILE_SECONDS).not_done
            session.finish(run, 0, _delivered(*claim.messages), claim.server_us)
        closing.result(timeout=10)

    assert len(subject.journal(run)) == 1


def test_end_of_a_slice_is_journalled_at_once(subject: StoreUnderTest) -> None:
    run = subject.open_sweep()

    with subject.store.open_task() as session:
        session.end_slice(run, 3, 1_000, None)
        session.end_slice(run, 4, 2_000, "Billing is locked \0")

    assert [type(entry) for entry in subject.journal(run)] == [SliceEntry, SliceEntry]
    first, second = subject.journal(run)
    assert first == SliceEntry(3, 1_000, None)
    assert isinstance(second, SliceEntry)
    assert (second.slice_number, second.planned) == (4, 2_000)
    assert str(second.reason).startswith("Billing is locked")


# --- side by side --------------------------------------------------------------------------------


def test_two_sweeps_side_by_side_deliver_each_of_several_thousand_messages_once(
    subject: StoreUnderTest,
) -> None:
    rows = [_row(subject) for _ in range(10)]
    due = subject.now() - MINUTE
    rows += [delayed_row("Nowhere" if n % 100 == 0 else "Billing", due=due) for n in range(4_000)]
    subject.load(rows)
    runs = [subject.open_sweep(), subject.open_sweep()]
    keys = [row.key for row in rows]
    start = threading.Barrier(2)

    def sweep(run: SweepRun, keys: list[str]) -> None:
        job = DispatchJob(
            store=subject.store,
            queue=subject.queue,
            run=run,
            limits=BatchLimits(rows=50),
            retry=Retry(),
            max_exhausted=0,
            error_queue=None,
        )
        start.wait(10)
        dispatch_slice(job, 0, keys, [1_000] * len(keys))

    with ThreadPoolExecutor() as pool:
        # From both ends, so that both have work and meet in the middle.
        list(pool.map(sweep, runs, [keys, keys[::-1]]))

    unknown = {row.key for row in rows if '"Nowhere"' in row.headers}
    expected = [without_forward_destination(r.headers) for r in rows if r.key not in unknown]
    assert sorted(subject.delivered()) == sorted(expected)
    assert subject.waiting() == unknown
    assert subject.attempts() == dict.fromkeys(unknown, 1)
    journals = [_batches(subject, run) for run in runs]
    assert all(sum(entry.dispatched for entry in journal) for journal in journals)
    accounts = [key for journal in journals for entry in journal for key in _accounts(entry)]
    assert sorted(accounts) == sorted(set(keys) - unknown)


def _batches(subject: StoreUnderTest, run: SweepRun) -> list[BatchEntry]:
    return [entry for entry in subject.journal(run) if isinstance(entry, BatchEntry)]


def _accounts(entry: BatchEntry) -> list[str]:
    if entry.outcomes is None:
        return []
    keys: list[str] = tombstone.decode(entry.outcomes).column("message_key").to_pylist()
    return keys
