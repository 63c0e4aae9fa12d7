"""All that the ledger holds after a sweep, column by column."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from duesweep.core.message import MESSAGE_ID
from duesweep.ledger.rows import SWEEPS
from duesweep.sweep.spark import SparkEngine
from duesweep.sweep.sweep import InProcessEngine
from duesweep_testing.builders import BODY, MESSAGE_TYPE, DelayedRow, delayed_row
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader, retry_rows
from support.sweeps import run_sweep

FIRST_FAILED = datetime(2026, 11, 20, 8, 0, 0, 123_456, tzinfo=UTC)
NOT_FOUND = "duesweep.errors.QueueNotFoundError"


@pytest.mark.on_spark
@pytest.mark.parametrize("writer", ["delta-rs", "spark"])
def test_delivered_failed_and_exhausted_messages_are_all_that_the_ledger_holds(
    writer: str, spark: SparkSession, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    due = endpoint.due_in(-60)
    delivered, failed, exhausted = (
        delayed_row(destination, due=due) for destination in ("Billing", "Nowhere", "Nowhere")
    )
    endpoint.load([delivered, failed, exhausted])
    context = endpoint.context(retry__max_attempts=2, ledger__writer=writer)
    source = context.store.source
    endpoint.execute(
        f"INSERT INTO {endpoint.own_table('attempts')}"
        " VALUES ($1, $2, NULL, NULL, 1, $3, $3, $3, 'x', 'x')",
        source,
        exhausted.key,
        FIRST_FAILED,
    )

    engine = SparkEngine(spark) if writer == "spark" else InProcessEngine()
    summary = run_sweep(context, engine)

    sweep_row = {name: getattr(summary, name) for name in SWEEPS.names}
    assert sweep_row | {"dispatched": 1, "failed": 1, "exhausted": 1, "found": 3} == sweep_row
    ledger.assert_holds("sweeps", [sweep_row])
    same = {"sweep_id": summary.sweep_id, "source": source, "message_type": MESSAGE_TYPE}
    same |= {"due": due, "body_bytes": len(BODY)}
    left = [
        {
            **_named(delivered, "Billing"),
            "queue": '"public"."Billing"',
            "attempts": 1,
            "outcome": "dispatched",
        },
        {**_named(exhausted, "Nowhere"), "attempts": 2, "outcome": "exhausted"},
    ]
    # When they were dispatched is the server's affair; how late that was is asserted below.
    ledger.assert_holds(
        "tombstones", [row | same for row in left], but_for=["dispatched_at", "lateness_ms"]
    )
    [retry] = retry_rows(endpoint.attempts(), source)
    expected = {**_named(failed, "Nowhere"), "attempts": 1, "error_class": NOT_FOUND}
    assert retry | expected == retry
    assert retry["first_failed_at"] == retry["last_failed_at"] < retry["next_attempt_at"]
    ledger.assert_holds("retries", [retry])
    ledger.assert_holds(
        "errors",
        [
            {
                **_named(exhausted, "Nowhere"),
                "sweep_id": summary.sweep_id,
                "source": source,
                "attempts": 2,
                "first_failed_at": FIRST_FAILED,
                "error_class": NOT_FOUND,
                "error_text": retry["error_text"],
                "headers": json.loads(exhausted.headers),
                "headers_text": exhausted.headers,
                "body": BODY,
            }
        ],
        but_for=["last_failed_at", "stack"],
    )
    _assert_instants_agree(ledger)


def _named(row: DelayedRow, destination: str) -> dict[str, Any]:
    headers = json.loads(row.headers)
    return {
        "message_key": row.key,
        "message_id": headers[MESSAGE_ID],
        "destination": destination,
    }


def _assert_instants_agree(ledger: LedgerReader) -> None:
    """Lateness is from Due to the dispatch, and the last failure is when a message was given up."""
    tombstones_df = ledger.table("tombstones")
    late_ms = "(unix_micros(dispatched_at) - unix_micros(due)) / 1000"
    assert tombstones_df.filter(f"abs(lateness_ms - {late_ms}) >= 1").collect() == []
    exhausted_df = tombstones_df.filter("outcome = 'exhausted'")
    assert_df_equality(
        ledger.table("errors").select("message_key", "last_failed_at"),
        exhausted_df.select("message_key", F.col("dispatched_at").alias("last_failed_at")),
    )
