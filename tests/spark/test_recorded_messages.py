"""Swept, the recorded delayed rows become the recorded delivered rows."""

import json
from datetime import timedelta

from duesweep.core.policy import Retry
from duesweep.engines.base import Engine
from support import recordings
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.sweeps import exit_code, run_sweep

NOWHERE = "8344045c-3145-fea7-1b2d-f0786e9d3a98"


def load_recorded(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing", "Ship.ping", "error")
    endpoint.load(recordings.delayed_rows())


def test_delivered_rows_are_the_recorded_ones(
    engine: Engine, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    load_recorded(endpoint)

    summary = run_sweep(endpoint, engine)

    delivered = recordings.delivered_rows()
    assert set(delivered) == {'"public"."Billing"', '"Ship"."ping"'}
    for queue, expected in delivered.items():
        rows = endpoint.queue_rows(queue)
        assert sorted(rows, key=str) == sorted(expected, key=str)
        assert all(row.expires is None for row in rows)
    ids = {str(row.id) for row in endpoint.fetch('SELECT id FROM "Billing"')}
    assert len(ids) == 18
    assert not ids & {row.key for row in recordings.delayed_rows()}
    assert (summary.found, summary.dispatched, summary.failed) == (20, 19, 1)
    assert summary.bytes == sum(len(r.body or b"") for rows in delivered.values() for r in rows)
    # What is not yet due stays, and so does what failed.
    assert len(endpoint.waiting()) == 5
    (retry,) = ledger.rows("retries")
    assert (retry.message_id, retry.attempts, retry.destination) == (NOWHERE, 1, "Nowhere")
    assert retry.error_class == "duesweep.errors.QueueNotFoundError"
    assert retry.first_failed_at == retry.last_failed_at < retry.next_attempt_at
    assert ledger.count("tombstones") == 19
    (tombstone,) = [row for row in ledger.rows("tombstones") if row.message_id == "order/42"]
    assert tombstone.queue == '"public"."Billing"'
    assert tombstone.message_type == "Sales.Messages.CancelOrder"
    late = tombstone.dispatched_at - tombstone.due
    assert tombstone.lateness_ms == late // timedelta(milliseconds=1)


def test_message_for_nowhere_is_retried_after_its_backoff_and_ends_whole_in_errors(
    engine: Engine, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    load_recorded(endpoint)
    context = endpoint.context(retry__max_attempts=2, retry__error_queue="error")
    run_sweep(context, engine)
    with context.store.open_driver() as session:
        assert not session.has_work()  # in back-off: Spark is not needed
    endpoint.end_back_off()

    summary = run_sweep(context, engine)

    assert (summary.found, summary.exhausted, exit_code(summary)) == (1, 1, 3)
    (original,) = (row for row in recordings.delayed_rows() if NOWHERE in row.headers)
    (error,) = ledger.rows("errors")
    assert (error.message_id, error.attempts) == (NOWHERE, 2)
    assert error.headers_text == original.headers
    assert error.headers == json.loads(original.headers)
    assert error.body == original.body
    assert "QueueNotFoundError" in error.stack
    assert error.first_failed_at < error.last_failed_at
    assert ledger.rows("retries") == []
    (one,) = endpoint.queue_rows("error")
    recorded_message = recordings.error_row()
    ours, theirs = json.loads(one.headers), json.loads(recorded_message.headers)
    inner = "NServiceBus.ExceptionInfo.InnerExceptionType"
    assert list(ours) == [name for name in theirs if name != inner]
    fault = [name for name in theirs if "ExceptionInfo" in name or "TimeOfFailure" in name]
    assert {n: v for n, v in ours.items() if n not in fault} == {
        n: v for n, v in theirs.items() if n not in fault
    }
    assert one.body == recorded_message.body
    (tombstone,) = [row for row in ledger.rows("tombstones") if row.outcome == "exhausted"]
    assert (tombstone.queue, tombstone.attempts) == ('"public"."error"', 2)


def test_ordinary_sweep_makes_two_commits(
    engine: Engine, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(3)
    run_sweep(endpoint, engine)
    before = {name: ledger.commits(name) for name in ("tombstones", "retries", "errors", "sweeps")}
    endpoint.delay_many(3)

    run_sweep(endpoint, engine)

    after = {name: ledger.commits(name) for name in before}
    assert {name: after[name] - before[name] for name in before} == {
        "tombstones": 1,
        "retries": 0,
        "errors": 0,
        "sweeps": 1,
    }


def test_no_attempts_are_needed_where_one_is_all(
    engine: Engine, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up()
    endpoint.delay_many(5, ["Nowhere"])
    context = endpoint.context(retry__max_attempts=1, retry__max_exhausted_per_sweep=2)
    assert context.retry == Retry(max_attempts=1)

    summary = run_sweep(context, engine)

    assert (summary.exhausted, summary.failed, summary.over_limit) == (2, 3, 3)
    assert len(ledger.rows("errors")) == 2
    assert len(ledger.rows("retries")) == len(endpoint.waiting()) == 3
