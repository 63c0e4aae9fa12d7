"""`delays migrate` moves waiting messages from the first delay ladder to the second without loss,
even if it is stopped, killed or runs while others send.
"""

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duesweep.drivers.rabbitmq.connection import Brokers, RabbitMqConnection
from duesweep.drivers.rabbitmq.publisher import Publication, Publisher, PublishResult
from duesweep.queues.rabbitmq import topology
from duesweep_transport.exact import Consumer, ExactRabbitMqConnection
from duesweep_transport.migration import POISON_QUEUE, LevelReport, MigrationReport
from support.rabbitmq.broker import Broker
from support.rabbitmq.broker_server import BrokerServer
from support.rabbitmq.commands import LIB, process, run
from support.rabbitmq.migrations import (
    TIME_SENT,
    Onlooker,
    counts,
    create_first_ladder,
    delay,
    first_name,
    migrate,
    migration,
    time_sent,
)
from support.recordings import migrated_messages
from support.waiting import until

pytestmark = pytest.mark.usefixtures("_empty_ladders")


@pytest.fixture(scope="module")
def shared(broker_server: BrokerServer) -> Iterator[Broker]:
    """A vhost with both ladders and endpoint Billing; `_empty_ladders` empties it after a test."""
    broker = Broker(broker_server, "migrated")
    create_first_ladder(broker)
    broker.channel.confirm_delivery()
    assert run(broker, "endpoint", "create", "Billing").code == 0
    yield broker
    broker.close()


@pytest.fixture
def _empty_ladders(shared: Broker) -> Iterator[None]:
    yield
    for name in counts(shared):
        shared.channel.queue_purge(name)
    shared.channel.queue_delete(POISON_QUEUE)


def test_results_are_the_recorded_ones(shared: Broker) -> None:
    """Two and a quarter seconds after they were sent, as when NServiceBus's own tool moved them."""
    recorded = migrated_messages()
    for one in recorded:
        seconds = one.headers[topology.DELAY_HEADER]
        assert isinstance(seconds, int)
        delay(
            shared,
            "Billing",
            seconds,
            {**one.headers, "x-death": [{"count": 1}], "x-last-death-queue": "nsb"},
            message_id=str(one.properties["message_id"]),
        )
    (sent,) = {str(one.headers[TIME_SENT]) for one in recorded}
    now = datetime.strptime(sent, "%Y-%m-%d %H:%M:%S:%f %z") + timedelta(seconds=2.25)

    report = MigrationReport()
    migration(shared, now).run(report, *Onlooker())

    assert (report.moved, report.poison, report.left, report.redelivered) == (20, 0, 0, 0)
    moved = shared.take_all(topology.level_name(13), 20)
    for (method, properties, body), one in zip(moved, recorded, strict=True):
        headers = {n: v for n, v in properties.headers.items() if not n.startswith("x-")}
        assert (method.exchange, method.routing_key) == (one.exchange, one.routing_key)
        assert headers == one.headers
        assert set(properties.headers) - set(headers) <= {"x-delivery-count", "x-dotnet-pub-seq-no"}
        assert (properties.message_id, properties.delivery_mode) == (
            one.properties["message_id"],
            one.properties["delivery_mode"],
        )
        assert body.decode() == properties.message_id
    assert not any(counts(shared).values())


def test_messages_of_all_levels_arrive_once_and_expired_ones_at_once(shared: Broker) -> None:
    long_ago = {TIME_SENT: time_sent(datetime.now(UTC) - timedelta(days=4_000))}
    levels = range(6, topology.LEVELS, 3)
    for level in levels:
        delay(shared, "Billing", 2**level + 30, message_id=f"level {level}")
        delay(shared, "Billing", 2**level + 30, long_ago, message_id=f"expired {level}")

    code, report = migrate(shared)

    assert (code, report["moved"], report["left"], report["poison"]) == (0, 16, 0, 0)
    expired = shared.take_all("Billing", 8)
    assert {body.decode() for _, _, body in expired} == {f"expired {n}" for n in levels}
    assert all(method.routing_key == "0." * 28 + "Billing" for method, _, _ in expired)
    waiting = counts(shared)
    assert {waiting[topology.level_name(level)] for level in levels} == {1}
    assert sum(waiting.values()) == 8


@pytest.mark.parametrize(
    "properties",
    [
        {"message_id": b"\xff\xfe", "headers": {"bytes": b"\x00\xff", "text": "é"}},
        {"message_id": "1", "headers": {"NServiceBus.MessageId": b"4ec1\xff"}},
        {"message_id": "1", "headers": {"n": {"n": [1, None, "x", b"y", 2**40]}, "void": None}},
        {
            "correlation_id": "c", "reply_to": "r", "type": "t", "app_id": "a", "priority": 3,
            "timestamp": 2**40, "content_encoding": "utf-8", "content_type": "text/plain",
        },
    ],
    ids=["byte-array id", "byte-array id in headers", "nested", "all properties"],
)  # fmt: skip
def test_properties_and_headers_stay_as_they_are(
    shared: Broker, properties: dict[str, Any]
) -> None:
    delay(shared, "Billing", **properties)
    ((_, before, _),) = _peek(shared, first_name(16))

    assert migrate(shared)[0] == 0

    ((_, after, _),) = shared.take_all(topology.level_name(16), 1)
    for added in ("x-delivery-count", "x-dotnet-pub-seq-no"):
        after.headers.pop(added, None)
    assert after.headers == before.headers
    assert vars(after) == vars(before)


def _peek(broker: Broker, queue: str) -> list[Any]:
    method, properties, body = broker.channel.basic_get(queue)
    broker.channel.basic_nack(method.delivery_tag)
    broker.wait_for(queue, 1)
    return [(method, properties, body)]


@pytest.mark.parametrize(
    "headers",
    [
        {TIME_SENT: ...},
        {TIME_SENT: "yesterday"},
        {topology.DELAY_HEADER: ...},
        {topology.DELAY_HEADER: "soon", "x-death": [{"count": 1}]},
        {topology.DELAY_HEADER: ..., TIME_SENT: ...},
    ],
)
def test_poison_goes_to_its_queue_as_it_is(shared: Broker, headers: dict[str, Any]) -> None:
    delay(shared, "Billing", headers=headers, message_id=b"\xff")
    ((_, before, _),) = _peek(shared, first_name(16))

    code, report = migrate(shared)

    assert (code, report["moved"], report["poison"], report["left"]) == (3, 0, 1, 0)
    ((reason, count),) = report["reasons"].items()
    assert reason.startswith("poison for Billing: header ")
    assert count == 1
    ((_, after, body),) = shared.take_all(POISON_QUEUE, 1)
    del after.headers["x-dotnet-pub-seq-no"]
    assert (vars(after), body) == (vars(before) | {"headers": before.headers or {}}, b"b'\\xff'")


def test_message_with_another_routing_key_is_poison(shared: Broker) -> None:
    shared.channel.basic_publish("", first_name(5), b"stray")

    code, report = migrate(shared)

    assert (code, report["poison"]) == (3, 1)
    assert list(report["reasons"]) == [
        f"poison without destination: '{first_name(5)}' is not a routing key of a delay ladder"
    ]
    assert [body for _, _, body in shared.take_all(POISON_QUEUE, 1)] == [b"stray"]


@pytest.mark.parametrize("style", ["conventional", "direct"])
def test_message_without_a_destination_stays_and_enters_no_ladder(
    shared: Broker, style: str
) -> None:
    """More of them than are taken at a time: the ones behind them are also moved."""
    for number in range(60):
        delay(shared, "Nowhere", message_id=f"{number}")
    for number in range(30):
        delay(shared, "Billing", message_id=f"{number}")

    code, report = migrate(shared, max_in_flight=8, topology=style)

    assert (code, report["moved"], report["left"], report["poison"]) == (3, 30, 60, 0)
    ((reason, count),) = report["reasons"].items()
    kind = "exchange" if style == "conventional" else "queue"
    assert reason.startswith("left, for Nowhere: there is no ")
    assert kind in reason or "queue" in reason
    assert count >= 60
    until(lambda: shared.count(first_name(16)) == 60)
    assert shared.count(topology.level_name(16)) == 30
    shared.create_queue("Nowhere")
    shared.channel.exchange_declare("Nowhere", "fanout", durable=True)
    shared.channel.queue_bind("Nowhere", "Nowhere")
    try:
        code, report = migrate(shared, topology=style)
        # Handed out before, and not moved then: it is only a bound.
        assert (code, report["moved"], report["left"], report["redelivered"]) == (0, 60, 0, 60)
    finally:
        shared.delete("Nowhere")


def test_destination_is_bound_before_anything_enters(shared: Broker) -> None:
    shared.channel.exchange_unbind("Billing", topology.DELIVERY_EXCHANGE, "#.Billing")
    delay(shared, "Billing", headers={TIME_SENT: time_sent(datetime.now(UTC) - timedelta(days=9))})

    assert migrate(shared)[0] == 0
    assert len(shared.take_all("Billing", 1)) == 1


def test_refused_messages_stay(shared: Broker) -> None:
    """A destination that is full, of which the ladder knows nothing: nothing waits any more."""
    shared.create("Full", x_max_length=1, x_overflow="reject-publish")
    run(shared, "endpoint", "create", "Billing")
    try:
        for number in range(60):
            sent = {TIME_SENT: time_sent(datetime.now(UTC) - timedelta(days=9))}
            delay(shared, "Full", headers=sent, message_id=f"{number}")

        code, report = migrate(shared, max_in_flight=10)

        assert code == 3
        assert report["moved"] + report["left"] == 60
        assert report["left"] > 0
        assert any("RabbitMQ refused it" in reason for reason in report["reasons"])
        assert shared.count("Full") == report["moved"]
    finally:
        shared.delete("Full")


def test_stop_finishes_what_is_on_its_way(shared: Broker) -> None:
    for number in range(100):
        delay(shared, "Billing", message_id=f"{number}")

    first, second = MigrationReport(), MigrationReport()
    migration(shared, max_in_flight=20).run(first, *Onlooker(batches=3))
    assert first.is_stopped
    assert 0 < first.moved < 100
    assert first.left == 100 - first.moved
    migration(shared).run(second, *Onlooker())

    assert (first.moved + second.moved, second.left) == (100, 0)
    bodies = Counter(body for _, _, body in shared.take_all(topology.level_name(16), 100))
    assert bodies == Counter(str(number).encode() for number in range(100))


def test_messages_that_come_meanwhile_are_moved_but_not_for_ever(shared: Broker) -> None:
    class Sender(Onlooker):
        sent = 10

        def tell(self, level: LevelReport) -> None:
            # As many as were moved: it would never end.
            while level.queue == first_name(16) and self.sent < level.moved + 10:
                delay(shared, "Billing")
                self.sent += 1

    for _ in range(10):
        delay(shared, "Billing")
    report, sender = MigrationReport(), Sender()
    migration(shared).run(report, *sender)

    assert report.moved >= 20
    assert report.moved + report.left == sender.sent
    assert counts(shared)[topology.level_name(16)] == report.moved


def test_dry_run_counts_and_moves_nothing(shared: Broker) -> None:
    for seconds in (100_000, 100_000, 40):
        delay(shared, "Billing", seconds)
    before = counts(shared)

    ran = run(shared, "delays", "migrate", "--dry-run")

    assert ran.code == 0
    assert ran.out.splitlines() == [
        f"{first_name(16)}: 2 waiting",
        f"{first_name(5)}: 1 waiting",
        "3 messages to migrate",
    ]
    assert counts(shared) == before


def test_lines_say_what_was_done(shared: Broker) -> None:
    delay(shared, "Billing")
    delay(shared, "Nowhere")

    ran = run(shared, "delays", "migrate")

    assert ran.code == 3
    assert ran.out.splitlines() == [
        f"{first_name(16)}: 1 moved, 0 poison, 1 left",
        "1 left, for Nowhere: there is no queue Nowhere; run `duesweep rabbitmq endpoint create`",
        "All levels: 1 moved, 0 poison, 1 left",
    ]


def test_without_a_first_ladder_there_is_nothing_to_do(broker: Broker) -> None:
    for options in ([], ["--dry-run"]):
        ran = run(broker, "delays", "migrate", *options)
        assert (ran.code, "Nothing to migrate" in ran.out) == (0, True)
    assert broker.definitions()["queues"] == []


def test_missing_second_ladder_is_created_first(broker: Broker) -> None:
    create_first_ladder(broker)
    broker.channel.confirm_delivery()
    broker.create("Billing")
    delay(broker, "Billing")
    # Until the management API has the new count, 0 is the old one.
    until(lambda: broker.told_of_queues()[first_name(16)][2] == 1)

    assert migrate(broker)[0] == 0
    assert broker.count(topology.level_name(16)) == 1
    until(lambda: broker.told_of_queues()[first_name(16)][2] == 0)
    assert run(broker, "delays", "verify").code == 0


_COUNT, _IN_FLIGHT, _SECONDS = 8_000, 100, 100_000
_FIRST, _SECOND = first_name(16), topology.level_name(16)


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
    shared: Broker, number: signal.Signals
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

    code, report = migrate(shared)
    assert code == 0

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
