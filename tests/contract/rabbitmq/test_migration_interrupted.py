"""A migration that is killed or stopped, and run again, has lost nothing, and says what may be
there twice.
"""

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from duesweep.drivers.rabbitmq.connection import Brokers, RabbitMqConnection
from duesweep.drivers.rabbitmq.exact import Consumer, ExactRabbitMqConnection
from duesweep.drivers.rabbitmq.publisher import Publication, Publisher, PublishResult
from duesweep.queues.rabbitmq import topology
from support.rabbitmq.broker import Broker
from support.rabbitmq.broker_server import BrokerServer
from support.rabbitmq.commands import LIB, process, run
from support.rabbitmq.first_ladder import TIME_SENT, create_first_ladder, first_name, time_sent
from support.waiting import until

_COUNT, _IN_FLIGHT, _SECONDS = 8_000, 100, 100_000
_FIRST, _SECOND = first_name(16), topology.level_name(16)


@pytest.fixture(scope="module")
def shared(broker_server: BrokerServer) -> Iterator[Broker]:
    """A vhost with both ladders and endpoint Billing."""
    broker = Broker(broker_server, "interrupted")
    create_first_ladder(broker)
    assert run(broker, "endpoint", "create", "Billing") == 0
    yield broker
    broker.close()


def _brokers(broker: Broker) -> Brokers:
    return Brokers((broker.url,), "queues.default")


def _load(broker: Broker) -> None:
    headers = {TIME_SENT: time_sent(datetime.now(UTC)), topology.DELAY_HEADER: _SECONDS}
    key = topology.routing_key(_SECONDS, "Billing")
    with RabbitMqConnection(_brokers(broker)) as connection:
        publisher = Publisher(connection, 2_000)
        publisher.publish(
            [
                Publication(_FIRST, key, headers, {"delivery_mode": 2}, str(number).encode())
                for number in range(_COUNT)
            ]
        )
        publisher.wait(180)
        assert set(publisher.take_results()) == {PublishResult.CONFIRMED}


def _bodies(broker: Broker) -> Counter[bytes]:
    """All that is on the second ladder; they are taken from there."""
    bodies: Counter[bytes] = Counter()
    with (
        ExactRabbitMqConnection(_brokers(broker)) as connection,
        Consumer(connection, _SECOND, 500) as consumer,
    ):
        while deliveries := consumer.take(_COUNT, 3):
            bodies.update(delivery.body for delivery in deliveries)
            consumer.acknowledge(deliveries)
    assert broker.count(_SECOND) == 0
    return bodies


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGTERM, marks=pytest.mark.long),
        pytest.param(signal.SIGINT, marks=pytest.mark.long),
    ],
)
def test_interrupted_migration_loses_nothing_and_bounds_what_is_there_twice(
    shared: Broker, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    _load(shared)
    settings = [f"--set=queues.default.max_in_flight={_IN_FLIGHT}"]

    with subprocess.Popen(
        [*process(shared, "delays", "migrate"), *settings],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(LIB)},
        text=True,
    ) as running:
        until(lambda: shared.count(_SECOND) > 2 * _IN_FLIGHT)
        running.send_signal(number)
        said, _ = running.communicate()
    until(lambda: shared.count(_FIRST) + shared.count(_SECOND) >= _COUNT)
    assert _COUNT > shared.count(_FIRST) > 0, "it was over before it could be interrupted"

    capsys.readouterr()
    assert run(shared, "delays", "migrate", "--json") == 0
    report = json.loads(capsys.readouterr().out)

    bodies = _bodies(shared)
    assert bodies.keys() == {str(one).encode() for one in range(_COUNT)}
    twice = bodies.total() - _COUNT
    print(f"{number.name}: {twice} there twice, {report['redelivered']} reported as the bound")
    assert twice <= report["redelivered"] <= _IN_FLIGHT
    assert report["left"] == 0
    if number is signal.SIGKILL:
        assert running.returncode == -signal.SIGKILL
    else:
        assert twice == 0
        assert running.returncode == 4
        assert said.splitlines()[-1] == "Stopped; run the command again to move the rest"
