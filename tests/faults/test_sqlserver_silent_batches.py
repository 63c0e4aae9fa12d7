"""A slice of SQL Server's store whose server falls silent: it ends in time, and nothing is lost."""

import time
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from duesweep.claim_keys import ClaimKeys
from duesweep.core.timeouts import Limits, Timeouts
from duesweep.dispatch import dispatch_slice
from duesweep.dispatch_job import DispatchJob
from duesweep.drivers.sqlserver.connection import SqlServerConnection
from duesweep.drivers.sqlserver.dsn import OdbcDsn
from duesweep.testing.builders import delayed_row
from support.contract.store_subjects import DelayedTableUnderTest
from support.proxy import Proxy, proxied

if TYPE_CHECKING:
    from support.sqlserver_server import SqlServerEndpoint


_ROWS = 60
_BATCH_ROWS = 20
# To open a session may take long on a machine with much to do.
_LIMITS = Limits(connect_seconds=10, answer_seconds=8, lock_seconds=1)
_LATE_SECONDS = 60.0


def _fall_silent(moment: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the second call of this method of a session's."""
    known = getattr(SqlServerConnection, moment)
    calls = count(1)

    def watched(*arguments: Any, **named: Any) -> Any:
        if next(calls) == 2:
            proxy.fall_silent()
        return known(*arguments, **named)

    monkeypatch.setattr(SqlServerConnection, moment, watched)


@pytest.mark.parametrize("moment", ["begin", "rows", "insert_messages", "commit"])
def test_slice_ends_and_the_next_completes(
    sqlserver_endpoint: "SqlServerEndpoint", monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    endpoint = sqlserver_endpoint.set_up("Billing")
    subject = DelayedTableUnderTest(endpoint)
    due = endpoint.due_in(-60)
    claim_keys = subject.claim_keys(subject.load([delayed_row(due=due) for _ in range(_ROWS)]))
    wanted = ClaimKeys(claim_keys, [100] * _ROWS, _ROWS)
    context = endpoint.context(sweep__batch_rows=_BATCH_ROWS)
    store: Any = context.store
    with proxied(OdbcDsn.parse(endpoint.server.database.dsn).port) as proxy:
        job = DispatchJob(
            replace(store, dsn=_dsn(endpoint, proxy.port)),
            context.queue,
            subject.open_sweep(),
            context.limits,
            context.retry,
            context.max_exhausted,
            context.error_queue,
        )
        with monkeypatch.context() as faults:
            faults.setattr(Timeouts, "task", _LIMITS)
            _fall_silent(moment, proxy, faults)
            started = time.monotonic()
            dispatch_slice(job, 0, wanted)
            taken = time.monotonic() - started

    assert taken < _LIMITS.connect_seconds + 2 * _LIMITS.answer_seconds + _LATE_SECONDS
    assert endpoint.attempts() == {}
    assert 0 < len(endpoint.waiting()) <= _ROWS

    dispatch_slice(replace(job, store=store), 1, wanted)

    assert endpoint.waiting() == []
    arrived = [row.message_id for row in endpoint.queue_rows("Billing")]
    assert len(arrived) == len(set(arrived)) == _ROWS


def _dsn(endpoint: "SqlServerEndpoint", port: int) -> str:
    pairs = OdbcDsn.parse(endpoint.server.database.dsn).pairs
    return OdbcDsn(pairs | {"server": f"127.0.0.1,{port}"}).text()
