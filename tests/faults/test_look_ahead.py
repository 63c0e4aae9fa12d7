"""Messages that come due between two sweeps reach RabbitMQ's endpoints when they are due.

A short run by default. The long one, with sweeps that start from nothing every minute as cron
starts them, takes seven minutes.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from statistics import median

import pika
import pytest

from duesweep.sweep.sweep import Engine
from duesweep_testing.builders import delayed_row, message
from support.endpoint import Endpoint
from support.rabbitmq.broker import Broker
from support.rabbitmq.settings import set_up, settings
from support.sweeps import run_sweep
from support.waiting import until

_ROOT = Path(__file__).parents[2]
_LATEST_SECONDS = 1.5
# A sweep of the short run that takes longer, on a busy machine, is late by as much.
_QUIET_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Run:
    """Sweeps every `period` seconds; `rate` messages a second come due for `seconds`, beginning
    `first` seconds after the first sweep was started.
    """

    period: float
    rate: int
    seconds: int
    first: float


@dataclass(slots=True)
class Arrivals:
    """When messages arrived, by their ids, in seconds since 1970-01-01 UTC."""

    times: dict[str, float] = field(default_factory=dict)
    doubles: int = 0

    def note(self, message_id: str) -> None:
        self.doubles += message_id in self.times
        self.times[message_id] = time.time()


@pytest.mark.long
def test_what_comes_due_between_two_sweeps_is_neither_early_nor_late(
    engine: Engine, endpoint: Endpoint, broker: Broker
) -> None:
    def tick() -> None:
        run_sweep(endpoint, engine, **_settings(broker, period=10))

    set_up(endpoint, broker, "Billing")
    tick()  # a session's first sweep takes longer than any other

    _check(endpoint, broker, Run(period=10, rate=40, seconds=25, first=12), tick)


@pytest.mark.long
def test_cron_each_minute_is_neither_early_nor_late_for_five_minutes(
    endpoint: Endpoint, broker: Broker
) -> None:
    set_up(endpoint, broker, "Billing")
    file = endpoint.config_file(**_settings(broker, period=60))

    def tick() -> None:
        # As cron: the next one may begin before this one has ended.
        started.append(
            subprocess.Popen(
                [_ROOT / "spark-submit.sh", "sweep", "--config", file],
                stdout=subprocess.DEVNULL,
                stderr=sys.stderr,
            )
        )

    started: list[subprocess.Popen[bytes]] = []
    # Created once for an installation.
    tick()
    assert started[0].wait() == 0
    _check(endpoint, broker, Run(period=60, rate=200, seconds=300, first=61), tick)
    assert [process.wait() for process in started] == [0] * len(started)


def _settings(broker: Broker, period: int) -> dict[str, object]:
    return settings(broker, sweep__look_ahead_seconds=period)


def _check(endpoint: Endpoint, broker: Broker, run: Run, tick: Callable[[], None]) -> None:
    dues = _load(endpoint, run)
    with _listening(broker) as arrivals, _ticking(run, tick) as took:
        until(lambda: len(arrivals.times) == len(dues), 300 + run.first + run.seconds)
    late = [arrivals.times[message_id] - due for message_id, due in dues.items()]
    step = 10 * run.rate
    tens = [f"{_p99(late[n : n + step]):.2f}" for n in range(0, len(late), step)]
    print(f"late, p99 of each ten seconds: {' '.join(tens)}")
    print(f"late: p50 {median(late):.3f}, p99 {_p99(late):.3f}, {min(late):.3f} to {max(late):.3f}")
    assert min(late) >= 0
    assert _p99(late) < _LATEST_SECONDS + max(0.0, max(took) - _QUIET_SECONDS)
    assert arrivals.doubles == 0


def _load(endpoint: Endpoint, run: Run) -> dict[str, float]:
    """Store the messages; by their ids, when they are due."""
    first = endpoint.due_in(run.first)
    dues = [first + timedelta(seconds=n / run.rate) for n in range(run.rate * run.seconds)]
    rows = [delayed_row("Billing", due=due) for due in dues]
    endpoint.load(rows)
    ids = [str(message(row).message_id) for row in rows]
    return dict(zip(ids, [due.timestamp() for due in dues], strict=True))


def _p99(late: Sequence[float]) -> float:
    return sorted(late)[-(-99 * len(late) // 100) - 1]


@contextmanager
def _ticking(run: Run, tick: Callable[[], None]) -> Iterator[list[float]]:
    """Sweep on; how long each sweep took that this waits for."""
    done = threading.Event()
    took: list[float] = []

    def ticks() -> None:
        began = time.monotonic()
        number = 0
        while not done.wait(max(0, began + number * run.period - time.monotonic())):
            before = time.monotonic()
            tick()
            took.append(time.monotonic() - before)
            number += 1

    ticker = threading.Thread(target=ticks)
    ticker.start()
    try:
        yield took
    finally:
        done.set()
        ticker.join()


@contextmanager
def _listening(broker: Broker) -> Iterator[Arrivals]:
    """Note what arrives at Billing."""
    arrivals = Arrivals()
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))

    def listen() -> None:
        channel = connection.channel()
        for method, properties, _ in channel.consume(
            "Billing", auto_ack=True, inactivity_timeout=1
        ):
            if method is not None:
                arrivals.note(properties.message_id)
            if done.is_set():
                break

    done = threading.Event()
    listener = threading.Thread(target=listen)
    listener.start()
    try:
        yield arrivals
    finally:
        done.set()
        listener.join()
        connection.close()
