"""A sweep to RabbitMQ that is stopped while its batches wait to be punctual."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from duesweep.queues.rabbitmq import topology
from duesweep.sweep.job import Stop
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.rabbitmq.broker import Broker
from support.rabbitmq.settings import set_up, settings
from support.sweeps import run_sweep
from support.waiting import until

_MESSAGES = 200
_BATCH_ROWS = 10
# The batch in hand, and what begins until the store knows of the stop.
_MOST_BATCHES = 6


def test_stop_waits_for_the_batch_in_hand_and_no_message_is_sent_twice(
    endpoint: Endpoint, broker: Broker, ledger: LedgerReader
) -> None:
    set_up(endpoint, broker, "Billing")
    endpoint.delay_many(_MESSAGES, due_in_seconds=900)
    config = settings(broker, sweep__batch_rows=_BATCH_ROWS, sweep__look_ahead_seconds=3_600)
    context = endpoint.context(**config)
    stop = Stop()

    with _asked_after_a_batch(stop, endpoint):
        stopped = run_sweep(context, stop=stop)

    assert (stopped.outcome, stopped.reason) == ("stopped", None)
    assert stopped.found == stopped.dispatched + stopped.left == _MESSAGES
    assert 0 < stopped.dispatched <= _MOST_BATCHES * _BATCH_ROWS
    assert len(endpoint.waiting()) == stopped.left
    until(lambda: _in_ladder(broker) == stopped.dispatched)

    assert run_sweep(context).dispatched == stopped.left

    until(lambda: _in_ladder(broker) == _MESSAGES)
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


def _in_ladder(broker: Broker) -> int:
    return sum(broker.count(topology.level_name(level)) for level in range(topology.LEVELS))
