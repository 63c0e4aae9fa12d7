"""Compares the pipelined publisher with one confirm at a time and with PerfTest, in turns, on one
broker with one kind of queue. See README.md.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import load_generator
import pika

from duesweep.drivers.rabbitmq.connection import Brokers, RabbitMqConnection
from duesweep.drivers.rabbitmq.publisher import Publication, Publisher, PublishResult

ROOT = Path(__file__).resolve().parent.parent
PIPELINED, ONE_BY_ONE, PERF_TEST = "pipelined", "one confirm at a time", "PerfTest"
LEAST_RATIO = 10
_QUEUE = "duesweep-bench"
_BODY = b"x" * 1_000
_HEADERS = {f"NServiceBus.Header{number:02}": f"value-{number:030}" for number in range(14)}
_PROPERTIES = {"delivery_mode": 2, "content_type": "application/json", "message_id": "m" * 36}
_IN_FLIGHT = 2_000
_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class PublisherContender:
    """A way to publish `count` messages. `publish` returns when all are confirmed; it returns
    messages a second if it has a figure of its own.
    """

    name: str
    publish: Callable[[str, int], float | None]
    count: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all contenders. Returns 1 if a message is missing, or the ratio is below ten."""
    options = _options(arguments)
    contenders = [
        PublisherContender(PIPELINED, _pipelined, options.messages),
        PublisherContender(ONE_BY_ONE, _one_by_one, options.one_by_one),
        PublisherContender(PERF_TEST, _perf_test, options.messages),
    ]
    ratios: dict[str, list[float]] = {ONE_BY_ONE: [], PERF_TEST: []}
    with _broker(options.url) as url:
        for number in range(options.rounds):
            turn = contenders if number % 2 == 0 else contenders[::-1]
            rates = {one.name: _rate(url, one, number + 1) for one in turn}
            for name, own in ratios.items():
                own.append(rates[PIPELINED] / rates[name])
    for name, own in ratios.items():
        each = ", ".join(f"{one:.2f}" for one in own)
        print(f"{PIPELINED} / {name}: {statistics.median(own):.2f} (median of {each})")
    return 0 if statistics.median(ratios[ONE_BY_ONE]) >= LEAST_RATIO else 1


def _rate(url: str, contender: PublisherContender, number: int) -> float:
    """Messages a second, into an empty queue."""
    with _empty_queue(url) as count:
        load = os.getloadavg()[0]
        started = time.monotonic()
        own_rate = contender.publish(url, contender.count)
        rate = own_rate or contender.count / (time.monotonic() - started)
        arrived = count()
    print(
        f"round {number}: {contender.name}: {contender.count:,} messages, {rate:,.0f}/s "
        f"(load {load:.1f})",
        flush=True,
    )
    if arrived != contender.count:
        sys.exit(f"{contender.name}: {arrived:,} of {contender.count:,} messages arrived")
    return rate


def _pipelined(url: str, count: int) -> None:
    publication = Publication("", _QUEUE, _HEADERS, _PROPERTIES, _BODY)
    with RabbitMqConnection(Brokers((url,), "bench")) as connection:
        publisher = Publisher(connection, _IN_FLIGHT)
        # As a task does it: batch by batch.
        for start in range(0, count, 1_000):
            publisher.publish([publication] * min(1_000, count - start))
            publisher.wait(_SECONDS)
            if set(publisher.take_results()) != {PublishResult.CONFIRMED}:
                sys.exit(f"Some messages were not confirmed: {publisher.fault}")


def _one_by_one(url: str, count: int) -> None:
    properties = pika.BasicProperties(headers=_HEADERS, **_PROPERTIES)
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    for _ in range(count):
        # Returns after the confirm, and raises if there is none.
        channel.basic_publish("", _QUEUE, _BODY, properties, mandatory=True)
    connection.close()


def _perf_test(url: str, count: int) -> float:
    return load_generator.publish(url, _QUEUE, count, len(_BODY), headers=_HEADERS)


@contextmanager
def _empty_queue(url: str) -> Iterator[Callable[[], int]]:
    """An empty quorum queue, as endpoints have. Yields a function that counts its messages."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    arguments: dict[str, Any] = {"x-queue-type": "quorum"}

    def count() -> int:
        found: int = channel.queue_declare(_QUEUE, passive=True).method.message_count
        return found

    channel.queue_declare(_QUEUE, durable=True, arguments=arguments)
    try:
        channel.queue_purge(_QUEUE)
        yield count
    finally:
        channel.queue_delete(_QUEUE)
        connection.close()


@contextmanager
def _broker(url: str | None) -> Iterator[str]:
    """The broker at `url`; None: a node like that of the tests, which ends with the block."""
    if url is not None:
        yield url
        return
    sys.path.insert(0, str(ROOT / "tests"))
    from support.rabbitmq.broker_server import installed, running  # noqa: PLC0415 - the tests'

    scripts = installed()
    if scripts is None:
        sys.exit("rabbitmq-server is not installed; name a broker with --url")
    with tempfile.TemporaryDirectory(prefix="duesweep-bench-") as folder:
        # The node may run under a user of its own.
        Path(folder).chmod(0o755)
        with running(scripts, Path(folder)) as server:
            yield server.url()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run publisher", description=__doc__)
    parser.add_argument("--messages", type=int, default=30_000, help="how many go pipelined")
    parser.add_argument("--one-by-one", type=int, default=1_000, help="how many go one by one")
    parser.add_argument("--rounds", type=int, default=3, help="how often each contender runs")
    parser.add_argument("--url", help="of a broker to use instead of one of its own")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
