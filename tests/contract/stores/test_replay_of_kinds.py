"""Errors of every kind of delayed table are replayed as a sweep would have delivered them."""

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from duesweep.core.exhausted import ErrorFilter
from duesweep.operations.duesweep import Duesweep
from duesweep.sweep.job import SweepContext
from duesweep_testing.builders import DelayedRow, delayed_row
from support.endpoint import Endpoint
from support.sweeps import run_sweep

_KINDS = [
    ("endpoint", "postgresql"),
    ("endpoint", "sql-persistence"),
    ("sqlserver_endpoint", "sqlserver"),
    ("sqlserver_endpoint", "msmq"),
    ("sqlserver_endpoint", "sql-persistence"),
]


@pytest.fixture(params=_KINDS, ids=" ".join)
def any_endpoint(request: pytest.FixtureRequest) -> Endpoint[Any]:
    name, kind = request.param
    endpoint: Endpoint[Any] = request.getfixturevalue(name)
    return endpoint.of_kind(kind).set_up("Billing")


def _rows(endpoint: Endpoint[Any]) -> list[DelayedRow]:
    more = {"null": None, "text": 'é"\\/<&>\t€ 𝄞'}
    rows = [
        delayed_row("Late", body=None),
        delayed_row("Late", body=b""),
        delayed_row("Late", body=b"\xff\x00\r\n", more=more),
    ]
    due = endpoint.due_in(-60)
    return [replace(row, due=due) for row in rows]


def _sweep(context: SweepContext) -> tuple[int, int]:
    summary = run_sweep(context)
    return summary.dispatched, summary.exhausted


def _sql(endpoint: Endpoint[Any]) -> str:
    table = endpoint.addresses.parse("Late")
    return str(getattr(table, "sql", table))


def _arrived(endpoint: Endpoint[Any]) -> list[tuple[str, bytes | None]]:
    """The arrived messages; forget them."""
    rows = endpoint.queue_rows("Late")
    endpoint.execute(f"DELETE FROM {_sql(endpoint)}")
    return sorted((row.headers, row.body or b"") for row in rows)


def test_replayed_messages_are_as_a_sweep_delivers_them(any_endpoint: Endpoint[Any]) -> None:
    # The MSMQ transport's store gives up at once without a queue.
    retry = {} if any_endpoint.kind == "msmq" else {"retry__max_attempts": 1}
    opened = Duesweep(any_endpoint.config(**retry))
    context = opened.context
    rows = _rows(any_endpoint)
    # A sweep gives up nothing if all queues are missing.
    any_endpoint.load([*rows, delayed_row("Billing", due=any_endpoint.due_in(-60))])
    assert _sweep(context) == (1, 3)
    any_endpoint.create_queue("Late")
    any_endpoint.load([replace(row, key=str(uuid4())) for row in rows])
    assert _sweep(context) == (3, 0)
    delivered = _arrived(any_endpoint)
    assert len(delivered) == 3

    done = opened.replay(ErrorFilter(), everything=True, reason="a test")

    assert (done.changed, done.ledger_error, done.failures) == (3, None, ())
    assert _sweep(context) == (3, 0)
    assert _arrived(any_endpoint) == delivered
