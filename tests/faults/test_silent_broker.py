"""A broker that accepts what it is sent and never answers, at each point of a sweep."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from duesweep.engines.base import Engine
from duesweep.errors import ExitCode
from duesweep.stores.journal import SweepSummary
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.proxy import Moment, Proxy, proxied
from support.rabbitmq.broker import Broker
from support.rabbitmq.settings import set_up, settings
from support.sweeps import exit_code, run_sweep

MESSAGES = 400
BATCH_ROWS = 50
SLICES = 2
SILENCE_SECONDS = 12
# Without a limit it would hang; a machine with much to do takes its time.
_DEADLINE_SECONDS = 240


@dataclass(frozen=True)
class Stage:
    """Due messages, and a proxy between the sweep and the broker of their queue."""

    engine: Engine
    endpoint: Endpoint
    broker: Broker
    proxy: Proxy

    def sweep_through_proxy(self) -> SweepSummary:
        """Within the stated time."""
        url = self.broker.server.url(self.broker.vhost, self.proxy.port)
        cut = {"sweep__batch_rows": BATCH_ROWS, "sweep__slices": SLICES}
        limits = {"timeouts__silence_seconds": SILENCE_SECONDS, "queues__default__url": url}
        started = time.monotonic()
        summary = self._sweep(**cut | limits)
        assert time.monotonic() - started < _DEADLINE_SECONDS
        return summary

    def sweep_healed(self) -> SweepSummary:
        """Past the proxy."""
        self.proxy.heal()
        return self._sweep()

    def _sweep(self, **more: object) -> SweepSummary:
        config = self.endpoint.config(**settings(self.broker) | more)
        return run_sweep(config, self.engine)


@pytest.fixture
def stage(engine: Engine, endpoint: Endpoint, broker: Broker) -> Iterator[Stage]:
    set_up(endpoint, broker, "Billing")
    with proxied(broker.server.amqp) as proxy:
        yield Stage(engine, endpoint, broker, proxy)


@pytest.mark.parametrize(
    ("awaited", "moment", "most_doubled"),
    [
        pytest.param(b"AMQP", Moment.BEFORE, 0, id="opening"),
        pytest.param(b"EnclosedMessageTypes", Moment.BEFORE, 0, id="messages"),
        # What the broker had taken and could not confirm: a batch of each slice.
        pytest.param(b"EnclosedMessageTypes", Moment.AFTER, SLICES * BATCH_ROWS, id="confirms"),
    ],
)
def test_sweep_whose_broker_falls_silent_ends_and_the_next_one_completes(
    awaited: bytes, moment: Moment, most_doubled: int, stage: Stage, ledger: LedgerReader
) -> None:
    keys = stage.endpoint.delay_many(MESSAGES)
    stage.proxy.fall_silent_at(awaited, moment=moment)

    cut = stage.sweep_through_proxy()

    assert stage.proxy.has_sprung.is_set()
    assert (exit_code(cut), cut.outcome) == (ExitCode.WORK_LEFT, "incomplete")
    assert cut.reason
    assert cut.found == cut.dispatched + cut.left == MESSAGES
    # The broker's fault costs no message an attempt.
    assert stage.endpoint.attempts() == {}
    done = stage.sweep_healed()
    assert (done.outcome, stage.endpoint.waiting()) == ("done", [])
    times = Counter(one.message_id for one in stage.broker.drain("Billing"))
    assert len(times) == MESSAGES
    assert times.total() - MESSAGES <= most_doubled
    tombstones = [row.message_key for row in ledger.rows("tombstones")]
    assert sorted(tombstones) == sorted(keys)
