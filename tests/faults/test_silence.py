"""A store or a broker that accepts data and never answers, at each point of a sweep.

The trials fall silent at a COMMIT or a confirm of any batch.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from duesweep.config.adapters.context import sweep_context
from duesweep.core.errors import ExitCode, StoreError
from duesweep.core.policy import DEFAULT_TIMEOUTS
from duesweep.core.result import exit_code_of
from duesweep.drivers.sqlserver.dsn import OdbcDsn
from duesweep.operations.look import look_at
from duesweep.operations.opening import choose_engine
from duesweep.sweep.job import Engine, SweepContext
from duesweep.sweep.spark import SparkEngine
from duesweep.sweep.stop import Stop
from support.endpoint import ON_BOTH_SERVERS, Endpoint
from support.ledger_reader import LedgerReader
from support.proxy import Moment, Proxy, proxied
from support.rabbitmq.broker import Broker
from support.rabbitmq.commands import set_up, settings
from support.sweeps import run_sweep
from support.waiting import in_time

_MESSAGES = 400
_CUT = {"sweep__batch_rows": 50, "sweep__slices": 2}
# To open a session of SQL Server, and to send it an array of parameters, takes long.
_SILENCE_SECONDS = {"postgresql": 6, "sqlserver": 30}
# Without limits a sweep would hang; a machine with much to do takes its time.
_DEADLINE_SECONDS = 240

_GATE = {"postgresql": ["ORDER BY d.due\nLIMIT 1"], "sqlserver": ["SELECT TOP (1) CONVERT("]}
# By the kind of the store, the statements sent before its store falls silent.
_POINTS: dict[str, dict[str, list[str]]] = {
    "postgresql": {
        "plan": ["slice = 0"],
        "move": ["g.tgtype & 11 = 11"],
        "batch": ["'batch'"],
        "COMMIT": ["'batch'", "COMMIT"],
        "settle": ["SET sealed_at"],
    },
    "sqlserver": {
        "plan": ["slice = 0"],
        "transaction": ["slice = 0", "BEGIN TRANSACTION"],
        "claim": ["AS tick"],
        "batch": ["Billing] (Id"],
        "COMMIT": ["'batch'", "COMMIT TRANSACTION"],
        "settle": ["SET sealed_at"],
    },
}


@dataclass(frozen=True)
class Stage:
    """Due messages with these keys, and a sweep of them whose store is behind the proxy."""

    endpoint: Endpoint[Any]
    proxy: Proxy
    context: SweepContext
    keys: Sequence[str]

    def fall_silent_at(self, texts: Sequence[str], **how: Any) -> None:
        encoding = "utf-16-le" if self.endpoint.kind == "sqlserver" else "utf-8"
        self.proxy.fall_silent_at(*(text.encode(encoding) for text in texts), **how)

    def assert_next_sweep_completes(self, ledger: LedgerReader) -> None:
        """Each message arrives once."""
        # The store's fault costs no message an attempt.
        assert self.endpoint.attempts() == {}
        self.proxy.heal()
        done = run_sweep(self.endpoint)
        assert (done.outcome, self.endpoint.waiting()) == ("done", [])
        times = Counter(row.message_id for row in self.endpoint.queue_rows("Billing"))
        assert (len(times), times.total()) == (_MESSAGES, _MESSAGES)
        assert sorted(row.message_key for row in ledger.rows("tombstones")) == sorted(self.keys)


@pytest.fixture
def stage(endpoint: Endpoint[Any]) -> Iterator[Stage]:
    endpoint.set_up("Billing")
    keys = endpoint.delay_many(_MESSAGES)
    with _proxied(endpoint) as (proxy, dsn):
        context = endpoint.context(
            store__dsn=dsn,
            store__name=endpoint.context().store.source,
            timeouts__silence_seconds=_SILENCE_SECONDS[endpoint.kind],
            **_CUT,
        )
        yield Stage(endpoint, proxy, context, keys)


@contextmanager
def _proxied(endpoint: Endpoint[Any]) -> Iterator[tuple[Proxy, str]]:
    """A proxy before the endpoint's database, and the dsn that leads through it."""
    if endpoint.kind == "sqlserver":
        parsed = OdbcDsn.parse(endpoint.dsn)
        with proxied(parsed.port) as proxy:
            yield proxy, OdbcDsn(parsed.pairs | {"server": f"127.0.0.1,{proxy.port}"}).text()
    else:
        with proxied(endpoint.server.admin.info.port) as proxy:
            yield proxy, make_conninfo(endpoint.dsn, host="127.0.0.1", port=proxy.port)


def _swept(context: SweepContext, engine: Engine) -> tuple[ExitCode, str]:
    """The exit code and the reason of a sweep, which ends within the stated time."""
    with in_time(_DEADLINE_SECONDS):
        try:
            report = run_sweep(context, engine)
        except StoreError as error:
            return exit_code_of(error), str(error)
    return exit_code_of(report), str(report.reason)


@ON_BOTH_SERVERS
def test_gate_that_is_not_answered_ends_with_work_left(stage: Stage) -> None:
    with look_at(
        stage.context, choose_engine(stage.context, prefers_session=False), Stop()
    ) as look:
        assert look.has_work
    stage.fall_silent_at(_GATE[stage.endpoint.kind])

    seconds = stage.context.timeouts.driver_seconds
    with (
        pytest.raises(StoreError, match=f"has not answered for {seconds:.0f} s") as failure,
        look_at(stage.context, choose_engine(stage.context, prefers_session=False), Stop()),
    ):
        pass

    assert exit_code_of(failure.value) == ExitCode.WORK_LEFT


@pytest.mark.parametrize(
    ("endpoint", "texts", "moment"),
    [
        pytest.param(kind, texts, moment, id=f"{kind}, {moment.name.lower()} {point}")
        for kind, points in _POINTS.items()
        for point, texts in points.items()
        for moment in Moment
        if moment is Moment.BEFORE or point == "COMMIT"
    ],
    indirect=["endpoint"],
)
def test_sweep_whose_store_falls_silent_ends_and_the_next_one_completes(
    texts: Sequence[str], moment: Moment, engine: Engine, stage: Stage, ledger: LedgerReader
) -> None:
    stage.fall_silent_at(texts, moment=moment)

    # Its watchdog has more patience: a slow machine is to come as far as the silence.
    ended, reason = _swept(replace(stage.context, timeouts=DEFAULT_TIMEOUTS), engine)

    assert stage.proxy.has_sprung.is_set()
    assert ended == ExitCode.WORK_LEFT, reason
    assert "has not answered" in reason
    stage.assert_next_sweep_completes(ledger)


def test_read_of_a_slice_that_is_never_answered_ends_and_is_told(
    spark: SparkSession, stage: Stage, ledger: LedgerReader
) -> None:
    stage.fall_silent_at(["WHERE slice = "], for_all=False)

    report = run_sweep(stage.context, SparkEngine(spark))

    assert exit_code_of(report) == ExitCode.WORK_LEFT
    assert (report.outcome, report.left) == ("incomplete", _MESSAGES)
    stage.assert_next_sweep_completes(ledger)


# Confirms that do not come: see the trials.
@pytest.mark.parametrize("awaited", [b"AMQP", b"EnclosedMessageTypes"], ids=["opening", "messages"])
def test_sweep_whose_broker_falls_silent_ends_and_the_next_one_completes(
    awaited: bytes, engine: Engine, endpoint: Endpoint, broker: Broker, ledger: LedgerReader
) -> None:
    set_up(endpoint, broker, "Billing")
    keys = endpoint.delay_many(_MESSAGES)
    with proxied(broker.server.amqp) as proxy:
        through = {
            "queues__default__url": broker.server.url(broker.vhost, proxy.port),
            "timeouts__silence_seconds": 6,
            "breaker__trigger_seconds": 1,
        }
        context = sweep_context(endpoint.config(**settings(broker) | _CUT | through))
        proxy.fall_silent_at(awaited)

        ended, reason = _swept(context, engine)

        assert proxy.has_sprung.is_set()
    assert ended == ExitCode.WORK_LEFT, reason
    assert reason != "None"
    # The broker's fault costs no message an attempt.
    assert endpoint.attempts() == {}
    assert endpoint.waiting() == sorted(keys)

    done = run_sweep(endpoint, engine, **settings(broker))

    assert (done.outcome, endpoint.waiting()) == ("done", [])
    times = Counter(one.message_id for one in broker.drain("Billing"))
    assert (len(times), times.total()) == (_MESSAGES, _MESSAGES)
    assert sorted(row.message_key for row in ledger.rows("tombstones")) == sorted(keys)
