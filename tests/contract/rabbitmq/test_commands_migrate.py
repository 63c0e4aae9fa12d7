"""`delays migrate` moves what waits on the first delay ladder to the second, and loses nothing."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from broker import Broker
from broker_server import BrokerServer
from contract.rabbitmq.commands import run
from contract.rabbitmq.first_ladder import (
    TIME_SENT,
    create_first_ladder,
    delay,
    first_name,
    time_sent,
)
from recordings import migrated_messages
from waiting import until

from duesweep.drivers.rabbitmq import Brokers
from duesweep.queues.rabbitmq import ladder
from duesweep.queues.rabbitmq.migration.migrate import Migration
from duesweep.queues.rabbitmq.migration.plan import POISON_QUEUE
from duesweep.queues.rabbitmq.migration.report import LevelReport, MigrationReport
from duesweep.queues.rabbitmq.topology import Style

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def shared(broker_server: BrokerServer) -> Iterator[Broker]:
    """A vhost with both ladders and endpoint Billing, all empty at the start of each test."""
    broker = Broker(broker_server, "migrated")
    create_first_ladder(broker)
    broker.channel.confirm_delivery()
    assert run(broker, "endpoint", "create", "Billing") == 0
    yield broker
    broker.close()


@pytest.fixture(autouse=True)
def _empty(shared: Broker) -> Iterator[None]:
    yield
    for name in _counts(shared):
        shared.channel.queue_purge(name)
    shared.channel.queue_delete(POISON_QUEUE)


def _counts(broker: Broker) -> dict[str, int]:
    """Messages by the queues of both ladders, and Billing's."""
    levels = [
        ladder.level_name(level, prefix)
        for level in range(ladder.LEVELS)
        for prefix in (ladder.PREFIX, ladder.FIRST_PREFIX)
    ]
    return {name: broker.count(name) for name in (*levels, "Billing")}


def _migrate(
    broker: Broker, capsys: pytest.CaptureFixture[str], **settings: Any
) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = run(broker, "delays", "migrate", "--json", **settings)
    return code, json.loads(capsys.readouterr().out)


class _Watch:
    """Looks on, and stops after so many batches."""

    def __init__(self, batches: int | None = None) -> None:
        self._left = batches

    @property
    def is_stopped(self) -> bool:
        return self._left is not None and self._left <= 0

    def tell(self, level: LevelReport) -> None:
        if self._left is not None and level.moved:
            self._left -= 1


def _migration(broker: Broker, now: datetime | None = None, max_in_flight: int = 2000) -> Migration:
    brokers = Brokers((broker.url,), "queues.default")
    at = now or datetime.now(UTC)
    return Migration(brokers, Style.CONVENTIONAL, "queues.default.url", max_in_flight, lambda: at)


def test_results_are_the_recorded_ones(shared: Broker) -> None:
    """Two and a quarter seconds after they were sent, as when NServiceBus's own tool moved them."""
    recorded = migrated_messages()
    for one in recorded:
        seconds = one.headers[ladder.DELAY_HEADER]
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
    _migration(shared, now).run(report, _Watch())

    assert (report.moved, report.poison, report.left, report.redelivered) == (20, 0, 0, 0)
    moved = shared.take_all(ladder.level_name(13), 20)
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
    assert not any(_counts(shared).values())


def test_messages_of_all_levels_arrive_once_and_expired_ones_at_once(
    shared: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    long_ago = {TIME_SENT: time_sent(datetime.now(UTC) - timedelta(days=4_000))}
    levels = range(6, ladder.LEVELS, 3)
    for level in levels:
        delay(shared, "Billing", 2**level + 30, message_id=f"level {level}")
        delay(shared, "Billing", 2**level + 30, long_ago, message_id=f"expired {level}")

    code, report = _migrate(shared, capsys)

    assert (code, report["moved"], report["left"], report["poison"]) == (0, 16, 0, 0)
    expired = shared.take_all("Billing", 8)
    assert {body.decode() for _, _, body in expired} == {f"expired {n}" for n in levels}
    assert all(method.routing_key == "0." * 28 + "Billing" for method, _, _ in expired)
    counts = _counts(shared)
    assert {counts[ladder.level_name(level)] for level in levels} == {1}
    assert sum(counts.values()) == 8


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
    shared: Broker, capsys: pytest.CaptureFixture[str], properties: dict[str, Any]
) -> None:
    delay(shared, "Billing", **properties)
    ((_, before, _),) = _peek(shared, first_name(16))

    assert _migrate(shared, capsys)[0] == 0

    ((_, after, _),) = shared.take_all(ladder.level_name(16), 1)
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
        {ladder.DELAY_HEADER: ...},
        {ladder.DELAY_HEADER: "soon", "x-death": [{"count": 1}]},
        {ladder.DELAY_HEADER: ..., TIME_SENT: ...},
    ],
)
def test_poison_goes_to_its_queue_as_it_is(
    shared: Broker, capsys: pytest.CaptureFixture[str], headers: dict[str, Any]
) -> None:
    delay(shared, "Billing", headers=headers, message_id=b"\xff")
    ((_, before, _),) = _peek(shared, first_name(16))

    code, report = _migrate(shared, capsys)

    assert (code, report["moved"], report["poison"], report["left"]) == (3, 0, 1, 0)
    ((reason, count),) = report["reasons"].items()
    assert reason.startswith("poison for Billing: header ")
    assert count == 1
    ((_, after, body),) = shared.take_all(POISON_QUEUE, 1)
    del after.headers["x-dotnet-pub-seq-no"]
    assert (vars(after), body) == (vars(before) | {"headers": before.headers or {}}, b"b'\\xff'")


def test_message_with_another_routing_key_is_poison(
    shared: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    shared.channel.basic_publish("", first_name(5), b"stray")

    code, report = _migrate(shared, capsys)

    assert (code, report["poison"]) == (3, 1)
    assert list(report["reasons"]) == [
        f"poison for nobody: '{first_name(5)}' is no routing key of a delay ladder"
    ]
    assert [body for _, _, body in shared.take_all(POISON_QUEUE, 1)] == [b"stray"]


@pytest.mark.parametrize("style", ["conventional", "direct"])
def test_message_without_a_destination_stays_and_enters_no_ladder(
    shared: Broker, capsys: pytest.CaptureFixture[str], style: str
) -> None:
    """More of them than are taken at a time: those behind them are moved all the same."""
    for number in range(60):
        delay(shared, "Nowhere", message_id=f"{number}")
    for number in range(30):
        delay(shared, "Billing", message_id=f"{number}")

    code, report = _migrate(shared, capsys, max_in_flight=8, topology=style)

    assert (code, report["moved"], report["left"], report["poison"]) == (3, 30, 60, 0)
    ((reason, count),) = report["reasons"].items()
    kind = "exchange" if style == "conventional" else "queue"
    assert reason.startswith("left, for Nowhere: there is no ")
    assert kind in reason or "queue" in reason
    assert count >= 60
    until(lambda: shared.count(first_name(16)) == 60)
    assert shared.count(ladder.level_name(16)) == 30
    shared.create_queue("Nowhere")
    shared.channel.exchange_declare("Nowhere", "fanout", durable=True)
    shared.channel.queue_bind("Nowhere", "Nowhere")
    try:
        code, report = _migrate(shared, capsys, topology=style)
        # Handed out before, and not moved then: it is only a bound.
        assert (code, report["moved"], report["left"], report["redelivered"]) == (0, 60, 0, 60)
    finally:
        shared.delete("Nowhere")


def test_destination_is_bound_before_anything_enters(
    shared: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    shared.channel.exchange_unbind("Billing", ladder.DELIVERY_EXCHANGE, "#.Billing")
    delay(shared, "Billing", headers={TIME_SENT: time_sent(datetime.now(UTC) - timedelta(days=9))})

    assert _migrate(shared, capsys)[0] == 0
    assert len(shared.take_all("Billing", 1)) == 1


def test_refused_messages_stay(shared: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    """A destination that is full, of which the ladder knows nothing: nothing waits any more."""
    shared.create("Full", x_max_length=1, x_overflow="reject-publish")
    run(shared, "endpoint", "create", "Billing")
    try:
        for number in range(60):
            sent = {TIME_SENT: time_sent(datetime.now(UTC) - timedelta(days=9))}
            delay(shared, "Full", headers=sent, message_id=f"{number}")

        code, report = _migrate(shared, capsys, max_in_flight=10)

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
    _migration(shared, max_in_flight=20).run(first, _Watch(batches=3))
    assert first.is_stopped
    assert 0 < first.moved < 100
    assert first.left == 100 - first.moved
    _migration(shared).run(second, _Watch())

    assert (first.moved + second.moved, second.left) == (100, 0)
    bodies = Counter(body for _, _, body in shared.take_all(ladder.level_name(16), 100))
    assert bodies == Counter(str(number).encode() for number in range(100))


def test_messages_that_come_meanwhile_are_moved_but_not_for_ever(shared: Broker) -> None:
    class Sender(_Watch):
        sent = 10

        def tell(self, level: LevelReport) -> None:
            # As many as were moved: it would never end.
            while level.queue == first_name(16) and self.sent < level.moved + 10:
                delay(shared, "Billing")
                self.sent += 1

    for _ in range(10):
        delay(shared, "Billing")
    report, sender = MigrationReport(), Sender()
    _migration(shared).run(report, sender)

    assert report.moved >= 20
    assert report.moved + report.left == sender.sent
    assert _counts(shared)[ladder.level_name(16)] == report.moved


def test_dry_run_counts_and_moves_nothing(
    shared: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    for seconds in (100_000, 100_000, 40):
        delay(shared, "Billing", seconds)
    before = _counts(shared)

    assert run(shared, "delays", "migrate", "--dry-run") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{first_name(16)}: 2 wait",
        f"{first_name(5)}: 1 wait",
        "3 messages to migrate",
    ]
    assert _counts(shared) == before


def test_lines_say_what_was_done(shared: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    delay(shared, "Billing")
    delay(shared, "Nowhere")

    assert run(shared, "delays", "migrate") == 3
    assert capsys.readouterr().out.splitlines() == [
        f"{first_name(16)}: 1 moved, 0 poison, 1 left",
        "1 left, for Nowhere: there is no queue Nowhere; run `duesweep rabbitmq endpoint create`",
        "All levels: 1 moved, 0 poison, 1 left",
    ]


def test_without_a_first_ladder_there_is_nothing_to_do(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    for options in ([], ["--dry-run"]):
        assert run(broker, "delays", "migrate", *options) == 0
        assert "There is nothing to migrate" in capsys.readouterr().out
    assert broker.definitions()["queues"] == []


def test_missing_second_ladder_is_created_first(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    create_first_ladder(broker)
    broker.channel.confirm_delivery()
    broker.create("Billing")
    delay(broker, "Billing")

    assert _migrate(broker, capsys)[0] == 0
    assert broker.count(ladder.level_name(16)) == 1
    assert run(broker, "delays", "verify") == 0
