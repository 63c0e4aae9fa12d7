"""Sweeps, handovers and replays to RabbitMQ: connections are cut, a queue is full, a driver dies or
is stopped.
"""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from duesweep import Duesweep, ErrorFilter
from duesweep.config.adapters.context import handover_context
from duesweep.core.headers import FORWARD_DESTINATION, read_json
from duesweep.core.message import MESSAGE_ID
from duesweep.operations.command import Changed
from duesweep.operations.handover import hand_over
from duesweep.queues.rabbitmq import topology
from duesweep.sweep.in_process import InProcessEngine
from duesweep.sweep.job import Engine
from duesweep.sweep.stop import Stop
from duesweep_testing.builders import DelayedRow, delayed_row
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.proxy import Proxy, Way, proxied
from support.rabbitmq.broker import Broker
from support.rabbitmq.commands import in_ladder, set_up, settings
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

    context = handover_context(endpoint.config(**settings(broker, **config)))
    done = hand_over(InProcessEngine(), context)

    assert (done.left, endpoint.waiting()) == (0, [])
    times = Counter(one.message_id for one in broker.drain(level))
    assert len(times) == 20_000
    assert sum(times.values()) - 20_000 <= _SLICES * _BATCH_ROWS
    tombstones = ledger.rows("tombstones")
    assert {row.outcome for row in tombstones} == {"deferred"}
    assert len(tombstones) == len({row.message_key for row in tombstones}) == 20_000
    assert 0 < done.report.dispatched < 20_000


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


_ROWS = 200
_REPLAYED_AT_ONCE = 40
_BODY = b"\xff\x00" * 500


def test_each_error_arrives_once_with_its_headers_and_its_body_to_the_byte(
    endpoint: Endpoint, broker: Broker, ledger: LedgerReader
) -> None:
    rows = _fail(endpoint, broker)
    opened = Duesweep(endpoint.config(**settings(broker, sweep__batch_rows=_REPLAYED_AT_ONCE)))

    done = _replay(opened)
    again = _replay(opened)
    assert opened.sweep().exit_code == 0

    assert (done.changed, done.refused) == (_ROWS, 0)
    assert (again.changed, again.gone, again.command_id) == (0, _ROWS, None)
    taken = broker.take_all("Billing", _ROWS)
    arrived = {properties.message_id: (properties.headers, body) for _, properties, body in taken}
    assert (len(taken), set(arrived)) == (_ROWS, set(rows))
    assert broker.count("Billing") == 0
    for message_id, row in rows.items():
        headers = {k: v for k, v in read_json(row.headers).items() if v is not None}
        headers.pop(FORWARD_DESTINATION)
        sent, body = arrived[message_id]
        assert body == _BODY
        assert {name: sent[name] for name in headers} == headers
        assert not [name for name in sent if "Failed" in name or "Exception" in name]
    assert _journalled(ledger) == dict.fromkeys(rows, 1)


def _fail(endpoint: Endpoint, broker: Broker) -> dict[str, DelayedRow]:
    """Messages that exhausted their attempts, by their ids; now their queue is there."""
    set_up(endpoint, broker, "Shipping")
    due = endpoint.due_in(-60)
    rows = [replace(delayed_row("Billing", body=_BODY), due=due) for _ in range(_ROWS)]
    endpoint.load(rows)
    config = settings(broker, retry__max_attempts=1, retry__max_exhausted_per_sweep=_ROWS)
    summary = run_sweep(endpoint, **config)
    assert summary.exhausted == _ROWS
    broker.create("Billing")
    return {str(read_json(row.headers)[MESSAGE_ID]): row for row in rows}


def _replay(opened: Duesweep) -> Changed:
    return opened.replay(ErrorFilter(), reason="the queue is there", everything=True)


def _journalled(ledger: LedgerReader) -> Counter[str]:
    """How often the ledger calls each message replayed."""
    rows = ledger.rows("changes")
    return Counter(row.message_id for row in rows if row.change == "replayed")


_MESSAGES = 200
_SENT_AT_ONCE = 10
# The current batch, and batches that begin until the store knows of the stop.
_MOST_BATCHES = 6


def test_stop_waits_for_the_batch_in_hand_and_no_message_is_sent_twice(
    endpoint: Endpoint, broker: Broker, ledger: LedgerReader
) -> None:
    set_up(endpoint, broker, "Billing")
    endpoint.delay_many(_MESSAGES, due_in_seconds=900)
    config = settings(broker, sweep__batch_rows=_SENT_AT_ONCE, sweep__look_ahead_seconds=3_600)
    context = endpoint.context(**config)
    stop = Stop()

    with _asked_after_a_batch(stop, endpoint):
        stopped = run_sweep(context, stop=stop)

    assert (stopped.outcome, stopped.reason) == ("stopped", None)
    assert stopped.found == stopped.dispatched + stopped.left == _MESSAGES
    assert 0 < stopped.dispatched <= _MOST_BATCHES * _SENT_AT_ONCE
    assert len(endpoint.waiting()) == stopped.left
    until(lambda: in_ladder(broker) == stopped.dispatched)

    assert run_sweep(context).dispatched == stopped.left

    until(lambda: in_ladder(broker) == _MESSAGES)
    tombstones = ledger.rows("tombstones")
    assert len(tombstones) == len({row.message_key for row in tombstones}) == _MESSAGES


@contextmanager
def _asked_after_a_batch(stop: Stop, endpoint: Endpoint) -> Iterator[None]:
    def ask() -> None:
        until(lambda: endpoint.fetch("SELECT FROM duesweep_journal WHERE kind = 'batch'"))
        stop.ask()

    asking = threading.Thread(target=ask)
    asking.start()
    yield
    asking.join()
