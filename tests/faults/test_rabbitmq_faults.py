"""Sweeps and handovers to RabbitMQ: connections are cut, a queue is full, a driver dies."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from duesweep import wiring
from duesweep.handover import handover
from duesweep.queues.rabbitmq import topology
from duesweep.sweep.sweep import Engine, InProcessEngine
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.proxy import Proxy, Way, proxied
from support.rabbitmq.broker import Broker
from support.rabbitmq.settings import set_up, settings
from support.sweeps import run_sweep
from support.waiting import until

_BATCH_ROWS = 125
_SLICES = 2
_CUTS = 4
_FULL_LENGTH = 50
_BYTES_BEFORE_CUT = 500_000
_YEAR_SECONDS = 31_536_000


def test_cut_connections_and_a_full_queue_lose_nothing_and_the_ledger_is_true(
    engine: Engine, endpoint: Endpoint, broker: Broker, ledger: LedgerReader
) -> None:
    set_up(endpoint, broker, "Billing", "Shipping")
    broker.create("Full", x_max_length=_FULL_LENGTH, x_overflow="reject-publish")
    keys = endpoint.delay_many(5_000, ("Billing", "Shipping", "Billing", "Shipping", "Full"))
    config = settings(broker, sweep__batch_rows=_BATCH_ROWS, sweep__slices=_SLICES)

    with proxied(broker.server.amqp) as proxy, _cutting(proxy):
        url = broker.server.url(broker.vhost, proxy.port)
        context = endpoint.context(**config | {"queues__default__url": url})
        summaries = [run_sweep(context, engine)]
        while summaries[-1].outcome == "incomplete":
            summaries.append(run_sweep(context, engine))

    # Two slices' connections may have sent so much at the same moment.
    assert proxy.cuts >= _CUTS
    arrived = {name: broker.drain(name) for name in ("Billing", "Shipping", "Full")}
    times = Counter(one.message_id for taken in arrived.values() for one in taken)
    tombstones = ledger.rows("tombstones")
    gone = {row.message_key for row in tombstones}
    assert len(tombstones) == len(gone) == sum(one.dispatched for one in summaries)
    assert set(endpoint.waiting()) == set(keys) - gone
    # At least once each, whatever has left the store; and no others but in a batch that was cut.
    assert {row.message_id for row in tombstones} <= set(times)
    doubled = sum(times.values()) - len(gone)
    assert doubled <= proxy.cuts * _BATCH_ROWS
    assert {name: len({m.message_id for m in taken}) for name, taken in arrived.items()} == {
        "Billing": 2_000,
        "Shipping": 2_000,
        "Full": len(arrived["Full"]),
    }
    refused = endpoint.attempts()
    assert set(refused) == set(endpoint.waiting())
    assert {row.destination for row in refused.values()} == {"Full"}
    assert {row.attempts for row in refused.values()} == {1}
    print(f"doubled {doubled} of 5,000 in {proxy.cuts} cuts, {len(summaries)} sweeps")


@pytest.mark.long
def test_handover_that_is_killed_continues_when_it_is_run_again(
    endpoint: Endpoint, broker: Broker, ledger: LedgerReader
) -> None:
    set_up(endpoint, broker, "Billing")
    endpoint.delay_many(20_000, due_in_seconds=_YEAR_SECONDS)
    config = {"sweep__batch_rows": _BATCH_ROWS, "sweep__slices": _SLICES}
    file = endpoint.config_file(**settings(broker, **config))
    level = topology.level_name(24)
    process = subprocess.Popen(
        [sys.executable, "-m", "duesweep", "handover", "--config", str(file)],
        env=os.environ | {"PYTHONPATH": "lib"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until(lambda: broker.count(level) > 2_000)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    until(lambda: broker.count(level) == broker.count(level))

    context = wiring.handover_context(endpoint.config(**settings(broker, **config)))
    done = handover(InProcessEngine(), context)

    assert (done.left, endpoint.waiting()) == (0, [])
    times = Counter(one.message_id for one in broker.drain(level))
    assert len(times) == 20_000
    assert sum(times.values()) - 20_000 <= _SLICES * _BATCH_ROWS
    tombstones = ledger.rows("tombstones")
    assert {row.outcome for row in tombstones} == {"deferred"}
    assert len(tombstones) == len({row.message_key for row in tombstones}) == 20_000
    assert 0 < done.summary.dispatched < 20_000


@contextmanager
def _cutting(proxy: Proxy) -> Iterator[None]:
    """Cut one connection after the other, each when it has sent so much."""
    done = threading.Event()

    def cut() -> None:
        for cuts in range(_CUTS):
            proxy.cut_after(_BYTES_BEFORE_CUT, Way.TO_SERVER)
            while proxy.cuts == cuts and not done.wait(0.01):
                continue

    cutter = threading.Thread(target=cut)
    cutter.start()
    try:
        yield
    finally:
        done.set()
        cutter.join()
