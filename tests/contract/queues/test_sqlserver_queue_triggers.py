"""Triggers on queue tables of SQL Server, which can undo a delivery without an error."""

from collections.abc import Callable
from typing import Literal

import pytest

from duesweep.stores.sweeps import SweepRun
from duesweep.sweep.claim_keys import ClaimKeys
from duesweep.sweep.limits import dispatch_slice
from duesweep_testing.builders import delayed_row
from duesweep_testing.journal import BatchEntry, SliceEntry
from duesweep_testing.sweeps import open_sweep
from support.contract.store_subjects import DelayedTableUnderTest
from support.sqlserver_server import SqlServerEndpoint
from support.sweeps import job_of

Dispatch = Callable[[], SweepRun]


@pytest.fixture(params=["sqlserver", "msmq"])
def endpoint(
    request: pytest.FixtureRequest, sqlserver_endpoint: SqlServerEndpoint
) -> SqlServerEndpoint:
    kind: Literal["sqlserver", "msmq"] = request.param
    endpoint = sqlserver_endpoint.of_kind(kind).set_up("Billing", "Shipping")
    endpoint.execute(f"CREATE TABLE {endpoint.own_table('audit')} (a int)")
    return endpoint


def _trigger(endpoint: SqlServerEndpoint, body: str) -> None:
    queue = f"[{endpoint.schema}].[Billing]"
    endpoint.execute(
        f"CREATE TRIGGER [{endpoint.schema}].[undoing] ON {queue} AFTER INSERT AS BEGIN {body} END"
    )


def _dispatch(endpoint: SqlServerEndpoint) -> tuple[DelayedTableUnderTest, SweepRun]:
    """Dispatch a message for each of two queues."""
    subject = DelayedTableUnderTest(endpoint)
    due = endpoint.due_in(-60)
    rows = subject.load([delayed_row("Billing", due=due), delayed_row("Shipping", due=due)])
    context = endpoint.context()
    run = open_sweep(subject.store)
    job = job_of(context, run)
    claim_keys = ClaimKeys(subject.claim_keys(rows), [100] * len(rows), len(rows))
    dispatch_slice(job, 0, claim_keys)
    return subject, run


def test_trigger_that_counts_and_then_rolls_back_leaves_its_message_and_lets_the_others_go(
    endpoint: SqlServerEndpoint,
) -> None:
    audit = endpoint.own_table("audit")
    _trigger(endpoint, f"INSERT INTO {audit} VALUES (1); ROLLBACK TRANSACTION")

    subject, run = _dispatch(endpoint)

    assert (len(endpoint.queue_rows("Billing")), len(endpoint.queue_rows("Shipping"))) == (0, 1)
    assert len(endpoint.waiting()) == 1
    assert endpoint.attempts() == {}
    batch, end = subject.journal(run)
    assert isinstance(batch, BatchEntry)
    assert (batch.dispatched, batch.failed) == (1, 0)
    assert isinstance(end, SliceEntry)
    assert "trigger" in (end.reason or "")


def test_trigger_that_drops_rows_loses_no_message(endpoint: SqlServerEndpoint) -> None:
    _trigger(endpoint, f"DELETE FROM [{endpoint.schema}].[Billing]")

    subject, run = _dispatch(endpoint)

    assert (len(endpoint.queue_rows("Billing")), len(endpoint.queue_rows("Shipping"))) == (0, 1)
    (failed,) = endpoint.attempts().values()
    assert "took 0 of 1 rows, and raised no error" in failed.error_text
    assert endpoint.waiting() == [failed.message_key]
    batch, _ = subject.journal(run)
    assert isinstance(batch, BatchEntry)
    assert (batch.dispatched, batch.failed) == (1, 1)


def test_counter_that_cannot_be_raised_cuts_the_slice_and_nothing_is_journalled(
    sqlserver_endpoint: SqlServerEndpoint,
) -> None:
    endpoint = sqlserver_endpoint.set_up("Billing", "Shipping")
    endpoint.execute(f"ALTER TABLE {endpoint.own_table('attempts')} ADD CHECK (attempts < 0)")
    endpoint.execute(f"DROP TABLE [{endpoint.schema}].[Billing]")

    subject, run = _dispatch(endpoint)

    assert len(endpoint.waiting()) == 2
    assert endpoint.queue_rows("Shipping") == []
    (end,) = subject.journal(run)
    assert isinstance(end, SliceEntry)
    assert end.reason is not None
