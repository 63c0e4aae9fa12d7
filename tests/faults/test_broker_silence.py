"""A broker that takes what it is sent and never answers, wherever in a sweep that begins."""

import time
from collections import Counter
from collections.abc import Iterator

import pytest
from broker import Broker
from endpoint import Endpoint
from ledger_reader import LedgerReader
from pyspark.sql import SparkSession
from rabbitmq_settings import set_up, settings
from silence import Moment, SilentProxy, silenced

from duesweep import wiring
from duesweep.errors import ExitCode
from duesweep.stores.values import SweepSummary
from duesweep.sweep import exit_code, sweep

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.slow]

MESSAGES = 400
BATCH_ROWS = 50
SLICES = 2
SILENCE_SECONDS = 12
# What a sweep that is not disturbed takes on a machine with much to do.
_SWEEP_SECONDS = 60


@pytest.fixture
def proxy(broker: Broker) -> Iterator[SilentProxy]:
    with silenced(broker.server.amqp) as proxy:
        yield proxy


def _sweep_into_silence(
    spark: SparkSession, endpoint: Endpoint, broker: Broker, proxy: SilentProxy
) -> SweepSummary:
    url = broker.server.url(broker.vhost, proxy.port)
    own = {"queues__default__url": url, "timeouts__silence_seconds": SILENCE_SECONDS}
    cut = {"sweep__batch_rows": BATCH_ROWS, "sweep__slices": SLICES}
    started = time.monotonic()
    summary = sweep(spark, wiring.parts(endpoint.config(**settings(broker, **cut) | own)))
    assert time.monotonic() - started < SILENCE_SECONDS + _SWEEP_SECONDS
    return summary


@pytest.mark.parametrize(
    ("awaited", "moment"),
    [
        pytest.param(b"AMQP", Moment.BEFORE, id="opening"),
        pytest.param(b"EnclosedMessageTypes", Moment.BEFORE, id="messages"),
        pytest.param(b"EnclosedMessageTypes", Moment.AFTER, id="confirms"),
    ],
)
def test_sweep_whose_broker_falls_silent_ends_and_the_next_one_completes(
    awaited: bytes,
    moment: Moment,
    spark: SparkSession,
    endpoint: Endpoint,
    broker: Broker,
    proxy: SilentProxy,
    ledger: LedgerReader,
) -> None:
    set_up(endpoint, broker, "Billing")
    keys = endpoint.delay_many(MESSAGES)
    proxy.fall_silent_at(awaited, moment=moment)

    cut = _sweep_into_silence(spark, endpoint, broker, proxy)

    assert proxy.has_sprung.is_set()
    assert (exit_code(cut), cut.outcome) == (ExitCode.WORK_LEFT, "incomplete")
    assert cut.reason
    assert cut.found == cut.dispatched + cut.left == MESSAGES
    # Nobody is charged for what the broker did.
    assert endpoint.attempts() == {}
    proxy.heal()
    done = sweep(spark, wiring.parts(endpoint.config(**settings(broker))))
    assert (done.outcome, endpoint.waiting()) == ("done", [])
    times = Counter(one.message_id for one in broker.drain("Billing"))
    assert len(times) == MESSAGES
    # Doubled is what the broker had taken and could not confirm: a batch of a slice at the most.
    assert times.total() - MESSAGES <= (SLICES * BATCH_ROWS if moment is Moment.AFTER else 0)
    tombstones = [row.message_key for row in ledger.rows("tombstones")]
    assert sorted(tombstones) == sorted(keys)
