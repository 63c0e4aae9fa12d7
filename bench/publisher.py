"""RabbitMQ: the pipelined publisher, one confirm at a time, and RabbitMQ's own load
generator, https://github.com/rabbitmq/rabbitmq-perf-test, on one broker with one kind of queue.
"""

import os
import re
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pyspark
from measure import NOT_RUN, ROOT, Faults, Figure, ratio_of, say

from duesweep.drivers.rabbitmq.connection import Brokers, RabbitMqConnection
from duesweep.drivers.rabbitmq.publisher import Publication, Publisher, PublishResult

_PIPELINED, _ONE_BY_ONE, _PERF_TEST = "pipelined", "one confirm at a time", "PerfTest"
_LEAST_RATIO = 10
_QUEUE = "duesweep-bench"
_BODY = b"x" * 1_000
_HEADERS = {f"NServiceBus.Header{number:02}": f"value-{number:030}" for number in range(14)}
_PROPERTIES = {"delivery_mode": 2, "content_type": "application/json", "message_id": "m" * 36}
_IN_FLIGHT = 2_000
_SECONDS = 300.0
_PERF_TEST_COORDINATE = "com.rabbitmq:perf-test:2.22.1"
_PERF_TEST_FOLDER = ROOT / ".cache" / "perf-test"
_RATE = re.compile(r"sending rate avg: (\d+) msg/s")


def publisher_options(parser: ArgumentParser) -> None:
    """Options of `bench/run publisher`."""
    parser.add_argument("--messages", type=int, default=30_000, help="how many go pipelined")
    parser.add_argument("--one-by-one", type=int, default=1_000, help="how many go one by one")
    parser.add_argument("--rounds", type=int, default=2, help="how often each contender runs")
    parser.add_argument("--url", help="of a broker to use instead of one of its own")


def publisher(options: Namespace, folder: Path) -> list[Figure]:
    """All contenders alternately, into an empty quorum queue."""
    contenders: dict[str, tuple[Callable[[str, int], float | None], int]] = {
        _PIPELINED: (_pipelined, options.messages),
        _ONE_BY_ONE: (_one_by_one, options.one_by_one),
        _PERF_TEST: (_perf_test, options.messages),
    }
    rates = defaultdict(list)
    with _broker(options.url, folder) as url:
        for number in range(options.rounds):
            for name in list(contenders)[:: 1 if number % 2 == 0 else -1]:
                publish, count = contenders[name]
                rates[name].append(_rate(url, publish, count))
                say(f"{name}: {count:,} messages, {rates[name][-1]:,.0f}/s")
    ours = rates[_PIPELINED]
    return [
        *(
            Figure(peer, tuple(map(round, rates[peer])), "messages/s")
            for peer in (_ONE_BY_ONE, _PERF_TEST)
        ),
        *(
            Figure(
                f"{_PIPELINED}, beside {peer}",
                tuple(map(round, ours)),
                "messages/s",
                peer=peer,
                ratio=ratio_of(ours, rates[peer]),
                enough=_LEAST_RATIO if peer == _ONE_BY_ONE else None,
                faults=Faults(),
            )
            for peer in (_ONE_BY_ONE, _PERF_TEST)
        ),
    ]


def _rate(url: str, publish: Callable[[str, int], float | None], count: int) -> float:
    """Messages a second: its own figure, or until all are confirmed. Ends the benchmark if one is
    missing.
    """
    with _empty_queue(url) as arrived:
        started = time.monotonic()
        own_rate = publish(url, count)
        rate = own_rate or count / (time.monotonic() - started)
        if arrived() != count:
            sys.exit(f"{arrived():,} of {count:,} messages arrived")
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
        # Returns after the confirm, and raises without one.
        channel.basic_publish("", _QUEUE, _BODY, properties, mandatory=True)
    connection.close()


def _perf_test(url: str, count: int) -> float:
    """Persistent, mandatory messages with 2,000 confirms in flight. Its own figure, which leaves
    out the start of its JVM.
    """
    properties = {"deliveryMode": "2", "contentType": "application/json", **_HEADERS}
    pairs = ",".join(f"{name}={value}" for name, value in properties.items())
    options = {
        **{"--queue": _QUEUE, "--size": len(_BODY), "--message-properties": pairs},
        **{"--producers": 1, "--consumers": 0, "--confirm": _IN_FLIGHT, "--pmessages": count},
    }
    command = ["java", "-cp", _perf_test_jars(), "com.rabbitmq.perf.PerfTest", "--predeclared"]
    command += [text for option in options.items() for text in map(str, option)]
    command += ["--flag", "persistent", "--flag", "mandatory"]
    # All users can see a command line, and the URL has a password.
    environment = os.environ | {"RABBITMQ_PERF_TEST_ENV_PREFIX": "BENCH", "BENCH_URI": url}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = _RATE.search(done.stdout)
    if done.returncode or found is None:
        sys.exit(f"PerfTest ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}")
    return float(found[1])


def _perf_test_jars() -> str:
    """PerfTest's jars, fetched once; what Spark ships as well is taken from there."""
    if not (_PERF_TEST_FOLDER / "jars").is_dir():
        sys.path.insert(0, str(ROOT / "scripts"))
        from renew_locks import resolve  # noqa: PLC0415 - starts a JVM

        resolve([_PERF_TEST_COORDINATE], _PERF_TEST_FOLDER)
    return f"{_PERF_TEST_FOLDER}/jars/*:{Path(pyspark.__file__).parent}/jars/*"


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
def _broker(url: str | None, folder: Path) -> Iterator[str]:
    """The broker at `url`; None: a node as in the tests, which ends with the block."""
    if url is not None:
        yield url
        return
    sys.path.insert(0, str(ROOT / "tests"))
    from support.rabbitmq.broker_server import installed, running  # noqa: PLC0415 - the tests'

    scripts = installed()
    if scripts is None:
        say("rabbitmq-server is not installed; name a broker with --url")
        sys.exit(NOT_RUN)
    with running(scripts, folder) as server:
        yield server.url()
