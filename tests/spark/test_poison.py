"""One message's own fault costs only that message, and never the settle after it."""

from duesweep.engines.base import Engine
from duesweep.testing.builders import DelayedRow, delayed_row
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep

POISON = {
    "not JSON": "not JSON",
    "empty": "",
    "an array": "[1, 2]",
    "null": "null",
    "a number for a value": '{"NServiceBus.MessageId": 1}',
    "NaN": '{"a": NaN}',
    "deep": "[" * 100_000,
    "deep object": '{"a":' * 5_000 + "1" + "}" * 5_000,
    "half a pair": '{"a":"\\ud800"}',
    "cut short": '{"NServiceBus.MessageId":"x","a":"',
    "duplicate names": '{"a": 1, "a": "2", "a": 3}',
    "a NUL in the address": '{"NServiceBus.SqlServer.ForwardDestination":"Bill\\u0000ing"}',
    "an empty address": '{"NServiceBus.SqlServer.ForwardDestination":""}',
    "no queue table": '{"NServiceBus.SqlServer.ForwardDestination":"NotAQueue"}',
    "a NUL in a missing queue's name": '{"NServiceBus.MessageId":"a\\u0000b",'
    '"NServiceBus.SqlServer.ForwardDestination":"No\'where"}',
}


def test_poison_is_exhausted_one_by_one_and_the_rest_is_delivered(
    engine: Engine, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing", "error")
    endpoint.execute('CREATE TABLE "NotAQueue" (id uuid, headers text)')
    poison = [DelayedRow(headers=headers) for headers in POISON.values()]
    endpoint.load(poison)
    endpoint.delay_many(20)
    config = endpoint.config(retry__max_attempts=1, retry__error_queue="error")

    summary = run_sweep(config, engine)

    assert (summary.dispatched, summary.exhausted, summary.failed) == (20, len(POISON), 0)
    errors = {row.message_key: row for row in ledger.rows("errors")}
    assert {key: row.headers_text for key, row in errors.items()} == {
        row.key: row.headers for row in poison
    }
    assert all(row.stack and row.error_text for row in errors.values())
    assert len(endpoint.queue_rows("error")) == len(POISON)
    assert ledger.count("tombstones") == 20 + len(POISON)


def test_row_that_the_destination_refuses_costs_only_itself(
    engine: Engine, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    endpoint.execute('CREATE UNIQUE INDEX ON "Billing" (headers)')
    twin = delayed_row()
    endpoint.load([twin, DelayedRow(headers=twin.headers)])
    endpoint.delay_many(300)

    summary = run_sweep(endpoint, engine)

    assert (summary.dispatched, summary.failed) == (301, 1)
    (retry,) = ledger.rows("retries")
    assert retry.error_class == "duesweep.errors.RefusedMessageError"
    assert "23505" in retry.error_text


def test_infinite_due_is_swept_and_has_no_lateness(
    engine: Engine, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    endpoint.load([delayed_row(due="-infinity"), delayed_row(due="infinity")])
    endpoint.delay_many(2)

    summary = run_sweep(endpoint, engine)

    assert summary.dispatched == 3
    assert (
        sum(row.due is None and row.lateness_ms is None for row in ledger.rows("tombstones")) == 1
    )
    assert len(endpoint.waiting()) == 1
