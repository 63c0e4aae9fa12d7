"""Migrations from the first delay ladder to the second, and what is left on either."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from duesweep.drivers.rabbitmq.connection import Brokers
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.migration.migrate import Migration
from duesweep.queues.rabbitmq.migration.report import LevelReport
from duesweep.queues.rabbitmq.topology import Style
from support.rabbitmq.broker import Broker
from support.rabbitmq.commands import run


def counts(broker: Broker) -> dict[str, int]:
    """Messages by the queues of both ladders, and Billing's."""
    levels = [
        topology.level_name(level, prefix)
        for level in range(topology.LEVELS)
        for prefix in (topology.PREFIX, topology.FIRST_PREFIX)
    ]
    return {name: broker.count(name) for name in (*levels, "Billing")}


def migrate(
    broker: Broker, capsys: pytest.CaptureFixture[str], **settings: Any
) -> tuple[int, dict[str, Any]]:
    """The exit code of the command, and what it says."""
    capsys.readouterr()
    code = run(broker, "delays", "migrate", "--json", **settings)
    return code, json.loads(capsys.readouterr().out)


class Onlooker:
    """Looks on, and stops after so many batches."""

    def __init__(self, batches: int | None = None) -> None:
        self._left = batches

    @property
    def is_stopped(self) -> bool:
        return self._left is not None and self._left <= 0

    def tell(self, level: LevelReport) -> None:
        if self._left is not None and level.moved:
            self._left -= 1


def migration(broker: Broker, now: datetime | None = None, max_in_flight: int = 2000) -> Migration:
    """A migration on the broker, at a moment that stands still."""
    brokers = Brokers((broker.url,), "queues.default")
    at = now or datetime.now(UTC)
    return Migration(brokers, Style.CONVENTIONAL, "queues.default.url", max_in_flight, lambda: at)
