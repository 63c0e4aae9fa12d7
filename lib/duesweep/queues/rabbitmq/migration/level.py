"""Moves one queue of the first ladder. A message is removed from it only when the second ladder has
confirmed it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from duesweep.core.errors import QueueError
from duesweep.drivers.rabbitmq.connection import Channel
from duesweep.drivers.rabbitmq.exact import Consumer, Delivery, ExactRabbitMqConnection
from duesweep.drivers.rabbitmq.publisher import Publisher, PublishResult
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.migration.destinations import MigrationDestinations
from duesweep.queues.rabbitmq.migration.plan import PlannedDelay, Poison, decide
from duesweep.queues.rabbitmq.migration.report import (
    LevelReport,
    MigrationProgress,
    MigrationReport,
)

_QUIET_SECONDS = 0.25
_NOTHING_COMES_SECONDS = 60.0
_REFUSALS = {
    PublishResult.RETURNED: "the second ladder lacks a binding; `duesweep rabbitmq delays verify`",
    PublishResult.REFUSED: "RabbitMQ refused it: a queue may be full, or without a leader",
    PublishResult.UNSENDABLE: "its headers are too long to be sent",
}


@dataclass(frozen=True, slots=True)
class Ways:
    """What the moves of all levels share."""

    connection: ExactRabbitMqConnection
    channel: Channel
    publisher: Publisher
    destinations: MigrationDestinations
    max_in_flight: int
    now: Callable[[], datetime]
    confirm_seconds: float


class LevelMove:
    """The move of one queue's messages."""

    def __init__(self, ways: Ways, level: LevelReport, report: MigrationReport) -> None:
        self._ways = ways
        self._level = level
        self._report = report
        self._taken = 0
        self._held = 0

    def run(self, watch: MigrationProgress) -> None:
        """Move the messages that are there, and those that come meanwhile."""
        limit = self._count_ready()
        if not limit:
            return
        with Consumer(
            self._ways.connection, self._level.queue, self._ways.max_in_flight
        ) as consumer:
            self._run_to(limit, consumer, watch)
            # Messages that came meanwhile. Those that come even later are left.
            came = self._count_ready() + consumer.unacknowledged - self._held
            self._run_to(self._taken + came, consumer, watch)
            # Messages on their way from the broker are counted nowhere, so let them arrive. Without
            # acknowledgements at most `max_in_flight` come.
            while consumer.take(self._ways.max_in_flight, _QUIET_SECONDS):
                continue
            self._level.left = consumer.unacknowledged + self._count_ready()

    def _run_to(self, limit: int, consumer: Consumer, watch: MigrationProgress) -> None:
        last, held = time.monotonic(), 0
        # Half of them, so that the other half can come meanwhile.
        most = max(self._ways.max_in_flight // 2, 1)
        while self._taken < limit and not watch.is_stopped:
            deliveries = consumer.take(most, _QUIET_SECONDS)
            if deliveries:
                self._taken += len(deliveries)
                self._move(deliveries, consumer)
                watch.tell(self._level)
                last = time.monotonic()
            elif not self._count_ready():
                return
            elif self._held > held:
                consumer.begin_anew()
                held = self._held
            elif time.monotonic() - last > _NOTHING_COMES_SECONDS:
                raise QueueError(
                    f"RabbitMQ delivers none of the messages of queue {self._level.queue}",
                    advice="run the command again",
                    transient=True,
                )

    def _count_ready(self) -> int:
        return topology.count(self._ways.channel, self._level.queue)

    def _move(self, deliveries: Sequence[Delivery], consumer: Consumer) -> None:
        now = self._ways.now()
        going = [(one, plan) for one in deliveries if (plan := self._plan(one, now)) is not None]
        publisher = self._ways.publisher
        publisher.publish([plan.copy(delivery) for delivery, plan in going])
        publisher.wait(self._ways.confirm_seconds)
        results = publisher.take_results()
        safe = [
            one
            for one, result in zip(going, results, strict=True)
            if result is PublishResult.CONFIRMED
        ]
        consumer.acknowledge([delivery for delivery, _ in safe])
        for delivery, plan in safe:
            self._count(delivery, plan)
        for (_, plan), result in zip(going, results, strict=True):
            if result in _REFUSALS:
                self._hold(plan.destination, _REFUSALS[result])
        self._raise_fault()

    def _plan(self, delivery: Delivery, now: datetime) -> PlannedDelay | Poison | None:
        plan = decide(delivery, now)
        if isinstance(plan, Poison):
            self._ways.destinations.create_poison_queue()
            return plan
        problem = self._ways.destinations.problem(plan.destination)
        if problem is not None:
            self._hold(plan.destination, problem)
            return None
        return plan

    def _hold(self, destination: str | None, reason: str) -> None:
        self._held += 1
        self._report.note_left(destination, reason)

    def _count(self, delivery: Delivery, plan: PlannedDelay | Poison) -> None:
        self._level.redelivered += delivery.is_redelivered
        if isinstance(plan, Poison):
            self._level.poison += 1
            self._report.note_poison(plan)
        else:
            self._level.moved += 1

    def _raise_fault(self) -> None:
        if self._ways.publisher.fault is not None:
            raise self._ways.publisher.fault
        blocked = self._ways.connection.blocked_reason
        if blocked is not None:
            raise QueueError(blocked, transient=True)
