"""What an operator's command leaves in the ledger, by both writers, to the value."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from duesweep.change_messages import Chosen, NewDue, cancel_chosen, reschedule_chosen
from duesweep.core.change import Command, CommandName, DueSpan
from duesweep.ledger.ledger import open_ledger
from duesweep.restore import CancelledId, CancelledMessages, Restore
from duesweep.steer import run_command
from duesweep_testing.builders import BODY, delayed_row
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader


@pytest.mark.on_spark
@pytest.mark.parametrize("writer", ["delta-rs", "spark"])
def test_commands_are_in_the_ledger_with_all_that_they_changed(
    writer: str, spark: SparkSession, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    (row,) = endpoint.load([delayed_row(due=datetime(2027, 1, 2, 3, 4, 5, 678901, tzinfo=UTC))])
    (other,) = endpoint.load([delayed_row(due=datetime(2027, 1, 2, tzinfo=UTC), body=None)])
    context = endpoint.context(ledger__writer=writer)
    session = spark if writer == "spark" else None
    tables = open_ledger(context.ledger_root, context.ledger_writer, session)

    def run(name: CommandName, work) -> str:  # type: ignore[no-untyped-def]
        report = run_command(context, tables, Command(name, "me@here", "why"), work)
        assert report.ledger_error is None
        return report.command_id

    limits = context.limits
    cancelled = run(CommandName.CANCEL, cancel_chosen(Chosen([row.key], [9], DueSpan()), limits))
    by_hour = NewDue(by=timedelta(hours=1))
    moved = run(
        CommandName.RESCHEDULE,
        reschedule_chosen(Chosen([other.key], [0], DueSpan()), limits, by_hour),
    )
    kept = CancelledMessages(tables, context.store.source)
    ids = [CancelledId(cancelled, row.key)]
    restored = run(CommandName.RESTORE, Restore(kept, ids, limits).work())

    key = next(key for key in endpoint.waiting() if key != other.key)
    headers = json.loads(row.headers)
    same = {
        "source": context.store.source,
        "given_by": "me@here",
        "reason": "why",
        "message_type": "Sales.Messages.CancelOrder",
        "destination": "Billing",
    }
    whole = {"headers": headers, "headers_text": row.headers, "body": bytearray(BODY)}
    instants = {one.change: one for one in ledger.rows("changes")}
    cancelled_at, moved_row = instants["cancelled"], instants["rescheduled"]
    ledger.assert_holds(
        "changes",
        [
            {
                **same,
                **whole,
                "sweep_id": cancelled,
                "command": "cancel",
                "change": "cancelled",
                "message_key": row.key,
                "message_id": headers["NServiceBus.MessageId"],
                "due_before": cancelled_at.due_before,
                "body_bytes": len(BODY),
            },
            {
                **same,
                "sweep_id": moved,
                "command": "reschedule",
                "change": "rescheduled",
                "message_key": other.key,
                "message_id": json.loads(other.headers)["NServiceBus.MessageId"],
                "due_before": moved_row.due_before,
                "due_after": moved_row.due_before + timedelta(hours=1),
                "body_bytes": 0,
            },
            {
                **same,
                "sweep_id": restored,
                "command": "restore",
                "change": "restored",
                "message_key": row.key,
                "message_id": headers["NServiceBus.MessageId"],
                "due_after": cancelled_at.due_before,
                "of": cancelled,
                "new_key": key,
                "body_bytes": len(BODY),
            },
        ],
        but_for=["changed_at"],
    )
    ledger.assert_holds(
        "tombstones",
        [
            {
                "sweep_id": cancelled,
                "source": context.store.source,
                "message_key": row.key,
                "message_id": headers["NServiceBus.MessageId"],
                "message_type": "Sales.Messages.CancelOrder",
                "destination": "Billing",
                "due": cancelled_at.due_before,
                "dispatched_at": cancelled_at.changed_at,
                "attempts": 0,
                "outcome": "cancelled",
                "body_bytes": len(BODY),
            }
        ],
    )
    assert cancelled_at.due_before.microsecond == 678901
