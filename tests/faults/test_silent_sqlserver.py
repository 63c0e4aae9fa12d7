"""A SQL Server that accepts what it is sent and never answers, at each point of a sweep."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from duesweep import wiring
from duesweep.api.look import look_at
from duesweep.core.timeouts import DEFAULT_TIMEOUTS
from duesweep.drivers.sqlserver.dsn import OdbcDsn
from duesweep.engines.base import Engine
from duesweep.errors import DuesweepError, ExitCode, StoreError
from support.ledger_reader import LedgerReader
from support.proxy import Moment, Proxy, proxied
from support.sweeps import exit_code, run_sweep

if TYPE_CHECKING:
    from duesweep.config import Config
    from support.sqlserver_server import SqlServerEndpoint


MESSAGES = 300
SILENCE_SECONDS = 60
_DEADLINE_SECONDS = 300
# What both drivers send texts in.
_TDS = "utf-16-le"


@dataclass(frozen=True)
class Stage:
    """300 due messages in two slices, in batches of 50, and a proxy before their store."""

    engine: Engine
    endpoint: "SqlServerEndpoint"
    proxy: Proxy

    @property
    def config(self) -> "Config":
        """Of a sweep through the proxy."""
        pairs = OdbcDsn.parse(self.endpoint.server.database.dsn).pairs
        return self.endpoint.config(
            store__dsn=OdbcDsn(pairs | {"server": f"127.0.0.1,{self.proxy.port}"}).text(),
            store__name=self.endpoint.context().store.source,
            sweep__batch_rows=50,
            sweep__slices=2,
            timeouts__silence_seconds=SILENCE_SECONDS,
        )

    def sweep_through_proxy(self) -> tuple[ExitCode, str]:
        """The exit code and the reason, within the stated time."""
        # Its watchdog has more patience: a slow machine is to come as far as the silence.
        context = replace(wiring.sweep_context(self.config), timeouts=DEFAULT_TIMEOUTS)
        started = time.monotonic()
        try:
            summary = run_sweep(context, self.engine)
            ended = exit_code(summary), str(summary.reason)
        except DuesweepError as error:
            ended = error.exit_code, str(error)
        assert time.monotonic() - started < _DEADLINE_SECONDS
        return ended


@pytest.fixture
def stage(engine: Engine, sqlserver_endpoint: "SqlServerEndpoint") -> Iterator[Stage]:
    endpoint = sqlserver_endpoint.set_up("Billing")
    with proxied(OdbcDsn.parse(endpoint.server.database.dsn).port) as proxy:
        yield Stage(engine, endpoint, proxy)


def test_gate_that_is_not_answered_ends_with_work_left(stage: Stage) -> None:
    stage.endpoint.delay()
    context = wiring.sweep_context(stage.config)
    assert look_at(context).has_work
    stage.proxy.fall_silent(hides_ends=True)

    with pytest.raises(StoreError) as failure:
        look_at(context)

    assert failure.value.exit_code == ExitCode.WORK_LEFT


@pytest.mark.parametrize(
    ("awaited", "moment"),
    [
        pytest.param(["AS position"], Moment.BEFORE, id="plan"),
        pytest.param(["slice = 0"], Moment.BEFORE, id="read of the plan"),
        pytest.param(["Billing] (Id"], Moment.BEFORE, id="batch"),
        pytest.param(["'batch'", "COMMIT TRANSACTION"], Moment.BEFORE, id="COMMIT"),
        pytest.param(["'batch'", "COMMIT TRANSACTION"], Moment.AFTER, id="answer to COMMIT"),
        pytest.param(["SET sealed_at"], Moment.BEFORE, id="settle"),
    ],
)
def test_sweep_whose_store_falls_silent_ends_and_the_next_one_completes(
    awaited: list[str], moment: Moment, stage: Stage
) -> None:
    keys = stage.endpoint.delay_many(MESSAGES)
    stage.proxy.fall_silent_at(*(text.encode(_TDS) for text in awaited), moment=moment)

    ended, reason = stage.sweep_through_proxy()

    assert stage.proxy.has_sprung.is_set()
    assert ended == ExitCode.WORK_LEFT
    assert "has not answered" in reason
    stage.proxy.heal()
    done = run_sweep(stage.endpoint, stage.engine)
    assert (done.outcome, stage.endpoint.waiting()) == ("done", [])
    arrived = Counter(row.message_id for row in stage.endpoint.queue_rows("Billing"))
    assert (len(arrived), arrived.total()) == (MESSAGES, MESSAGES)
    ledger = LedgerReader(stage.endpoint.folder / "ledger")
    assert sorted(row.message_key for row in ledger.rows("tombstones")) == sorted(keys)
