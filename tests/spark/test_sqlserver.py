"""What whole sweeps do on SQL Server alone: ticks, other databases, the MSMQ transport's store."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from duesweep import config as configuration
from duesweep.sweep.job import Engine
from duesweep.sweep.spark import SparkEngine
from duesweep_testing.builders import delayed_row
from support import recordings
from support.config_files import add_routes
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep

if TYPE_CHECKING:
    from support.sqlserver_server import SqlServerEndpoint


def _ledger(endpoint: "SqlServerEndpoint") -> LedgerReader:
    return LedgerReader(endpoint.folder / "ledger")


def test_dues_at_both_sides_of_every_tick_fall_between_no_slices(
    spark: SparkSession, sqlserver_endpoint: "SqlServerEndpoint"
) -> None:
    endpoint = sqlserver_endpoint.set_up("Billing")
    # A tick is 1/300 s: every millisecond for a while is every tick, several times over.
    rows = [delayed_row(due=endpoint.due_in(-60 - n / 1000)) for n in range(1_200)]
    endpoint.load(rows)

    summary = run_sweep(endpoint, SparkEngine(spark), sweep__slices=4, sweep__batch_rows=100)

    assert summary.found == 1_200
    others = summary.skipped + summary.gone + summary.eligible_later
    assert summary.dispatched + summary.left + others == 1_200
    assert len(endpoint.queue_rows("Billing")) == summary.dispatched
    assert len(endpoint.waiting()) == 1_200 - summary.dispatched


def test_queues_in_another_database_are_filled_in_the_same_transaction(
    engine: Engine, sqlserver_endpoint: "SqlServerEndpoint"
) -> None:
    endpoint = sqlserver_endpoint.set_up()
    address = f"Billing@[{endpoint.schema}]@[{endpoint.server.other.name}]"
    endpoint.create_queue(address)
    endpoint.delay_many(50, [address])

    summary = run_sweep(endpoint, engine)

    assert summary.dispatched == len(endpoint.queue_rows(address)) == 50


def _msmq(endpoint: "SqlServerEndpoint", **settings: object) -> Path:
    """The MSMQ transport's addresses lead to queue tables of the same schema."""
    file = endpoint.config_file(**settings)
    routes = [("*@*", "default", "{queue}"), ("error", "default", "{queue}")]
    return add_routes(file, *routes)


def test_recorded_msmq_messages_are_delivered_with_their_headers(
    engine: Engine, msmq_endpoint: "SqlServerEndpoint"
) -> None:
    endpoint = msmq_endpoint.set_up("Billing", "error")
    recorded = recordings.msmq_headers()
    for number, case in enumerate(recorded):
        endpoint.execute(
            f"INSERT INTO {endpoint.delayed} (Id, Destination, State, Time, Headers)"
            " VALUES (?, ?, 0x01, DATEADD(minute, -1, GETUTCDATE()), ?)",
            rf"{case.name}\{number}",
            case.to,
            case.xml,
        )
    config = configuration.load(_msmq(endpoint, retry__error_queue="error"))

    summary = run_sweep(config, engine)

    delivered = [json.loads(row.headers) for row in endpoint.queue_rows("Billing")]
    expected = [case.message_headers for case in recorded if case.to.startswith("Billing@")]
    assert len(delivered) == len(expected) == 19
    assert sorted(map(str, delivered)) == sorted(map(str, expected))
    # An unknown queue is given up at once, as the transport does.
    assert (summary.dispatched, summary.failed, summary.exhausted) == (19, 0, 2)
    errors = {row.destination: row for row in _ledger(endpoint).rows("errors")}
    assert set(errors) == {"Ship.ping@HOST-1", "Nowhere@HOST-9"}
    assert errors["Nowhere@HOST-9"].headers_text.startswith("<?xml")
    assert errors["Nowhere@HOST-9"].attempts == 1
    assert len(endpoint.queue_rows("error")) == 2
    assert endpoint.waiting() == []


@pytest.mark.parametrize("number_of_retries", [0, 2])
def test_msmq_message_gets_two_attempts_more_than_the_setting_says(
    engine: Engine, msmq_endpoint: "SqlServerEndpoint", number_of_retries: int
) -> None:
    endpoint = msmq_endpoint.set_up()
    endpoint.load([delayed_row("Billing", due=endpoint.due_in(-60))])
    key = endpoint.waiting()[0]
    endpoint.execute(f"UPDATE {endpoint.delayed} SET Destination = NULL")
    config = configuration.load(
        _msmq(endpoint, store__number_of_retries=number_of_retries, retry__initial_seconds=0)
    )

    attempts = 0
    while endpoint.waiting():
        attempts += 1
        (count,) = endpoint.fetch(f"SELECT RetryCount FROM {endpoint.delayed}")[0]
        assert count == attempts - 1
        run_sweep(config, engine)

    assert attempts == number_of_retries + 2
    (error,) = _ledger(endpoint).rows("errors")
    assert (error.message_key, error.attempts, error.destination) == (key, attempts, "")


def test_both_default_names_of_the_msmq_store_are_looked_for(
    msmq_endpoint: "SqlServerEndpoint",
) -> None:
    endpoint = msmq_endpoint.named("Old", delayed="Old.timeouts").set_up()
    endpoint.load([delayed_row("Billing@H", due=endpoint.due_in(-60))])

    by_default = msmq_endpoint.named("Old")
    with by_default.context().store.open_driver() as session:
        session.check()
        assert session.due.count_pending(session.due.horizon()) == 1
