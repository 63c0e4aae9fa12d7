"""Moves messages from the first delay ladder to the second. At least once, and never early."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from duesweep.drivers.rabbitmq.connection import Brokers, Channel, RabbitMqConnection
from duesweep.drivers.rabbitmq.exact import ExactRabbitMqConnection
from duesweep.drivers.rabbitmq.publisher import Publisher
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.migration.destinations import MigrationDestinations
from duesweep.queues.rabbitmq.migration.level import LevelMove, Ways
from duesweep.queues.rabbitmq.migration.report import (
    LevelReport,
    MigrationProgress,
    MigrationReport,
)
from duesweep.queues.rabbitmq.topology import Kind, RabbitMqSetup, Style


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Migration:
    """Moves a vhost's messages from the first ladder to the second, `max_in_flight` at a time."""

    brokers: Brokers
    style: Style
    setting: str
    max_in_flight: int
    now: Callable[[], datetime] = _utc_now

    def count(self) -> MigrationReport:
        """How many messages wait on each level, highest first. Moves none."""
        with RabbitMqConnection(self.brokers) as connection:
            return MigrationReport(_levels(Channel(connection)))

    def run(self, report: MigrationReport, watch: MigrationProgress) -> None:
        """Move them, and note in `report` what was done, even if it ends with an error.

        From the highest level down: a message whose time on a level ends meanwhile is found on a
        lower one.
        """
        with ExactRabbitMqConnection(self.brokers) as connection:
            channel = Channel(connection)
            levels = _levels(channel)
            if not levels:
                return
            RabbitMqSetup(self.brokers, self.style, (), self.setting).install(rebind=False)
            ways = Ways(
                connection,
                channel,
                Publisher(connection, self.max_in_flight),
                MigrationDestinations(channel, self.style),
                self.max_in_flight,
                self.now,
                self.brokers.timeouts.driver_seconds,
            )
            for level in levels:
                if watch.is_stopped:
                    break
                level.waiting = topology.count(channel, level.queue)
                report.levels.append(level)
                watch.tell(level)
                LevelMove(ways, level, report).run(watch)
            report.is_stopped = watch.is_stopped


def _levels(channel: Channel) -> list[LevelReport]:
    names = [
        topology.level_name(level, topology.FIRST_PREFIX)
        for level in reversed(range(topology.LEVELS))
    ]
    return [
        LevelReport(name, topology.count(channel, name))
        for name in names
        if topology.is_there(channel, Kind.QUEUE, name)
    ]
