"""Whole sweeps of each kind of delayed table: arrived messages, stored messages, the ledger."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from duesweep.core.account import SweepSummary
from duesweep.core.errors import ConfigError
from duesweep.core.result import exit_code_of
from duesweep.sweep.job import Engine
from duesweep_testing.builders import DelayedRow
from support import recordings
from support.endpoint import ON_BOTH_SERVERS, Endpoint
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep

NOWHERE = "8344045c-3145-fea7-1b2d-f0786e9d3a98"
# The recorded queues, and the addresses that lead to them.
_QUEUES = {'"public"."Billing"': "Billing", '"Ship"."ping"': "Ship.ping"}
_TIMEOUTS = ["postgresql sql-persistence", "sqlserver sql-persistence"]


def _of_kinds(*kinds: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("endpoint", kinds, indirect=True)


def _recorded_rows() -> Iterator[DelayedRow]:
    """To the millisecond: a stand-in for SQL Server converts no more digits to a `datetime`."""
    for row in recordings.delayed_rows():
        assert isinstance(row.due, datetime)
        yield replace(row, due=row.due.replace(microsecond=row.due.microsecond // 1_000 * 1_000))


def _adds_up(summary: SweepSummary) -> bool:
    claimed = summary.dispatched + summary.failed + summary.exhausted
    others = summary.skipped + summary.gone + summary.eligible_later
    return (summary.found, summary.claimed) == (claimed + others + summary.left, claimed)


@ON_BOTH_SERVERS
def test_recorded_messages_are_delivered_byte_for_byte(
    engine: Engine, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up(*_QUEUES.values())
    rows = endpoint.load(_recorded_rows())

    summary = run_sweep(endpoint, engine)

    recorded = recordings.delivered_rows()
    assert recorded.keys() == _QUEUES.keys()
    delivered = {queue: endpoint.queue_rows(address) for queue, address in _QUEUES.items()}
    assert all(Counter(delivered[queue]) <= Counter(recorded[queue]) for queue in _QUEUES)
    # SQL Server's grammar takes the quotes of one address for a part of the queue's name.
    misread = 0 if endpoint.kind == "postgresql" else 1
    assert summary.dispatched == sum(map(len, recorded.values())) - misread
    assert summary.dispatched == sum(map(len, delivered.values()))
    assert summary.bytes == sum(len(r.body or b"") for rows in delivered.values() for r in rows)
    billing = endpoint.server.sql(endpoint.schema, "Billing")
    ids = {str(row.id).lower() for row in endpoint.fetch(f"SELECT Id AS id FROM {billing}")}
    assert len(ids) == 18 - misread
    assert not ids & {row.key for row in recordings.delayed_rows()}
    assert _adds_up(summary)
    # Messages that are not due stay, and so do failed ones.
    assert (summary.found, summary.failed) == (20, 1 + misread)
    assert len(endpoint.waiting()) == len(rows) - summary.dispatched
    retries = {row.message_id: row for row in ledger.rows("retries")}
    assert len(retries) == summary.failed
    retry = retries[NOWHERE]
    assert (retry.attempts, retry.destination) == (1, "Nowhere")
    assert retry.error_class == "duesweep.errors.QueueNotFoundError"
    assert retry.first_failed_at == retry.last_failed_at < retry.next_attempt_at
    tombstones = {row.message_id: row for row in ledger.rows("tombstones")}
    assert len(tombstones) == summary.dispatched
    tombstone = tombstones["order/42"]
    assert tombstone.queue == str(endpoint.addresses.parse("Billing"))
    assert tombstone.message_type == "Sales.Messages.CancelOrder"
    late = tombstone.dispatched_at - tombstone.due
    assert tombstone.lateness_ms == late // timedelta(milliseconds=1)


@_of_kinds("postgresql", "sqlserver", *_TIMEOUTS)
def test_message_for_nowhere_waits_for_its_back_off_and_ends_whole_in_errors(
    engine: Engine, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing", "error")
    (recorded,) = (row for row in _recorded_rows() if NOWHERE in row.headers)
    original = replace(recorded, body=bytes(range(256)))
    (stored,) = endpoint.load([original])
    # If no destination is there, a sweep of timeouts claims nothing.
    endpoint.delay()
    # Longer than a sweep takes on any machine.
    back_off = {"retry__initial_seconds": 3_600, "retry__max_seconds": 3_600}
    context = endpoint.context(retry__max_attempts=2, retry__error_queue="error", **back_off)

    first = run_sweep(context, engine)
    with context.store.open_driver() as session:
        # In back-off: Spark is not needed.
        assert session.due.find_work(session.due.horizon()) is None
    held = run_sweep(context, engine)
    endpoint.end_back_off()
    endpoint.delay()
    second = run_sweep(context, engine)

    assert (first.dispatched, first.failed, first.exhausted, held.found) == (1, 1, 0, 0)
    assert (second.dispatched, second.failed, second.exhausted) == (1, 0, 1)
    assert (exit_code_of(second), endpoint.waiting(), ledger.rows("retries")) == (3, [], [])
    (error,) = ledger.rows("errors")
    assert (error.message_key, error.message_id, error.attempts) == (stored.key, NOWHERE, 2)
    assert (error.destination, error.body) == ("Nowhere", original.body)
    assert error.headers_text == endpoint.rows.stored_headers(original)
    assert error.headers == json.loads(error.headers_text)
    assert "QueueNotFoundError" in error.stack
    assert error.first_failed_at < error.last_failed_at
    (one,) = endpoint.queue_rows("error")
    assert one.body == original.body
    ours, theirs = json.loads(one.headers), json.loads(recordings.error_row().headers)
    inner = "NServiceBus.ExceptionInfo.InnerExceptionType"
    assert list(ours) == [name for name in theirs if name != inner]
    fault = [name for name in theirs if "ExceptionInfo" in name or "TimeOfFailure" in name]
    assert {n: v for n, v in ours.items() if n not in fault} == {
        n: v for n, v in theirs.items() if n not in fault
    }
    (tombstone,) = (row for row in ledger.rows("tombstones") if row.outcome == "exhausted")
    error_queue = str(endpoint.addresses.parse("error"))
    assert (tombstone.queue, tombstone.attempts) == (error_queue, 2)


@_of_kinds("postgresql", "sqlserver", *_TIMEOUTS)
def test_hundreds_of_messages_with_one_due_are_swept_once_by_several_slices(
    engine: Engine, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing", "Shipping")
    keys = endpoint.delay_many(600, ["Billing", "Shipping"])
    keys += [endpoint.delay(due_in_seconds=-seconds) for seconds in (1, 1_800, 40_000)]
    waiting = [endpoint.delay(due_in_seconds=seconds) for seconds in (600, 1_800, 40_000)]
    config = endpoint.config(sweep__batch_rows=100)

    # Babelfish lets two slices claim one row, and leaves it to the next sweep.
    sweeps = [run_sweep(config, engine) for _ in range(2)]

    if endpoint.server.abilities.skips_locked:
        first, second = sweeps
        assert (first.found, first.dispatched, first.outcome, second.found) == (603, 603, "done", 0)
    assert all(_adds_up(summary) for summary in sweeps)
    assert sum(summary.dispatched for summary in sweeps) == len(keys)
    arrived = {queue: endpoint.queue_rows(queue) for queue in ("Billing", "Shipping")}
    assert {queue: len(rows) for queue, rows in arrived.items()} == {
        "Billing": 303,
        "Shipping": 300,
    }
    assert len({row.message_id for rows in arrived.values() for row in rows}) == len(keys)
    assert endpoint.waiting() == sorted(waiting)
    tombstones = ledger.rows("tombstones")
    assert sorted(row.message_key for row in tombstones) == sorted(keys)
    late_ms = [row.lateness_ms for row in tombstones]
    assert min(late_ms) > 0
    assert 40_000_000 < max(late_ms) < 40_300_000


@_of_kinds(*_TIMEOUTS)
def test_no_timeout_is_claimed_where_none_of_the_queues_is_there(
    engine: Engine, endpoint: Endpoint
) -> None:
    endpoint.set_up("error")
    keys = endpoint.delay_many(20, ["Biling", "Shiping"])
    context = endpoint.context(retry__max_attempts=1, retry__error_queue="error")

    with pytest.raises(ConfigError, match=r"queues\.default has none of the queues"):
        run_sweep(context, engine)

    assert endpoint.waiting() == sorted(keys)
    assert endpoint.queue_rows("error") == []
    with context.store.open_driver() as session:
        assert all(one.is_closed for one in session.journal.unsettled())


def test_ordinary_sweep_makes_two_commits(
    engine: Engine, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(3)
    run_sweep(endpoint, engine)
    before = {name: ledger.commits(name) for name in ("tombstones", "retries", "errors", "sweeps")}
    endpoint.delay_many(3)

    run_sweep(endpoint, engine)

    added = {name: ledger.commits(name) - count for name, count in before.items()}
    assert added == {"tombstones": 1, "retries": 0, "errors": 0, "sweeps": 1}


def test_no_attempts_are_needed_where_one_is_all(
    engine: Engine, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up()
    endpoint.delay_many(5, ["Nowhere"])

    summary = run_sweep(endpoint, engine, retry__max_attempts=1, retry__max_exhausted_per_sweep=2)

    assert (summary.exhausted, summary.failed, summary.over_limit) == (2, 3, 3)
    assert [(f.count, f.destination) for f in summary.failures] == [(5, "Nowhere")]
    assert len(ledger.rows("errors")) == 2
    assert len(ledger.rows("retries")) == len(endpoint.waiting()) == 3
