"""A store that accepts what it is sent and never answers, at each point of a sweep."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from duesweep.api.look import look_at
from duesweep.context import SweepContext
from duesweep.core.timeouts import DEFAULT_TIMEOUTS
from duesweep.engines.base import Engine
from duesweep.engines.spark import SparkEngine
from duesweep.errors import ExitCode, StoreError
from duesweep.stores.journal import SweepSummary
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.proxy import Moment, Proxy, proxied
from support.sweeps import exit_code, run_sweep

SILENCE_SECONDS = 12
MESSAGES = 400
# For ever, next to the above; but a test must end.
_DEADLINE_SECONDS = 240


@pytest.fixture
def proxy(endpoint: Endpoint) -> Iterator[Proxy]:
    with proxied(endpoint.server.admin.info.port) as proxy:
        yield proxy


@pytest.fixture
def context(endpoint: Endpoint, proxy: Proxy) -> SweepContext:
    """A sweep of 400 messages in two slices, in batches of 50, whose store is behind the proxy."""
    endpoint.set_up("Billing")
    endpoint.delay_many(MESSAGES)
    dsn = make_conninfo(endpoint.dsn, host="127.0.0.1", port=proxy.port)
    source = endpoint.context().store.source
    return endpoint.context(
        store__dsn=dsn,
        store__name=source,
        sweep__batch_rows=50,
        sweep__slices=2,
        timeouts__silence_seconds=SILENCE_SECONDS,
    )


@dataclass
class Stage:
    """What the tests sweep."""

    engine: Engine
    context: SweepContext
    endpoint: Endpoint
    proxy: Proxy
    ledger: LedgerReader

    def assert_next_sweep_completes(self) -> None:
        self.proxy.heal()

        summary = run_sweep(self.endpoint)

        assert summary.outcome == "done"
        assert self.endpoint.waiting() == []
        assert len(self.endpoint.queue_rows("Billing")) == MESSAGES
        tombstones = self.ledger.rows("tombstones")
        assert len(tombstones) == len({row.message_key for row in tombstones}) == MESSAGES


@pytest.fixture
def stage(
    engine: Engine,
    context: SweepContext,
    endpoint: Endpoint,
    proxy: Proxy,
    ledger: LedgerReader,
) -> Stage:
    return Stage(engine, context, endpoint, proxy, ledger)


@dataclass
class Attempt:
    """A sweep on a thread of its own, and its result."""

    engine: Engine
    context: SweepContext
    summary: SweepSummary | None = None
    errors: list[BaseException] = field(default_factory=list)

    def run(self) -> "Attempt":
        thread = threading.Thread(target=self._sweep, daemon=True)
        thread.start()
        thread.join(_DEADLINE_SECONDS)
        assert not thread.is_alive(), "it hangs"
        return self

    def _sweep(self) -> None:
        try:
            self.summary = run_sweep(self.context, self.engine)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.errors.append(error)

    @property
    def exit_code(self) -> ExitCode:
        if self.summary is not None:
            return exit_code(self.summary)
        (error,) = self.errors
        assert isinstance(error, StoreError), error
        return error.exit_code

    @property
    def text(self) -> str:
        return str(self.summary.reason if self.summary is not None else self.errors[0])


def test_gate_that_is_not_answered_ends_with_work_left(context: SweepContext, proxy: Proxy) -> None:
    assert look_at(context).has_work
    proxy.fall_silent_at(b"ORDER BY d.due\nLIMIT 1")

    with pytest.raises(StoreError, match="has not answered for 8 s") as failure:
        look_at(context)

    assert failure.value.exit_code == ExitCode.WORK_LEFT


@pytest.mark.parametrize(
    ("awaited", "moment"),
    [
        pytest.param([b"row_number()"], Moment.BEFORE, id="plan"),
        pytest.param([b"slice = 0"], Moment.BEFORE, id="read of the plan"),
        pytest.param([b"PGCOPY"], Moment.BEFORE, id="batch"),
        pytest.param([b"PGCOPY", b"COMMIT"], Moment.BEFORE, id="COMMIT"),
        pytest.param([b"PGCOPY", b"COMMIT"], Moment.AFTER, id="answer to COMMIT"),
        pytest.param([b"SET sealed_at"], Moment.BEFORE, id="settle"),
    ],
)
def test_sweep_whose_store_falls_silent_ends_and_the_next_one_completes(
    awaited: list[bytes], moment: Moment, stage: Stage
) -> None:
    stage.proxy.fall_silent_at(*awaited, moment=moment)

    # Its watchdog has more patience: a slow machine is to come as far as the silence.
    attempt = Attempt(stage.engine, replace(stage.context, timeouts=DEFAULT_TIMEOUTS)).run()

    assert stage.proxy.has_sprung.is_set()
    assert attempt.exit_code == ExitCode.WORK_LEFT
    assert "has not answered" in attempt.text
    stage.assert_next_sweep_completes()


def test_read_of_a_slice_that_is_never_answered_ends_and_is_told(
    spark: SparkSession, stage: Stage
) -> None:
    stage.proxy.fall_silent_at(b"WHERE slice = ", for_all=False)

    attempt = Attempt(SparkEngine(spark), stage.context).run()

    assert attempt.exit_code == ExitCode.WORK_LEFT
    assert attempt.summary is not None
    assert (attempt.summary.outcome, attempt.summary.left) == ("incomplete", MESSAGES)
    stage.assert_next_sweep_completes()
