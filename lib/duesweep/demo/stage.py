"""The demonstration's endpoint: its settings, its tables and its messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg

from duesweep.config import Config
from duesweep.config.adapters.postgresql import store
from duesweep.core.address import PostgreSqlAddresses, TableName, quote_name
from duesweep.core.policy import DEFAULT_TIMEOUTS
from duesweep.drivers.postgresql.session import connect, text_of
from duesweep.operations.setup import set_up
from duesweep_testing.folder import Settings
from duesweep_testing.traffic import DESTINATIONS, ENDPOINT, Traffic, generate, load, stored_now

SCHEMA = "public"
ERROR_QUEUE = "error"
# The second sweep tries the failed messages again, for the last time.
MAX_ATTEMPTS = 2
RETRY_SECONDS = 1.0
# Fewer than a sweep may exhaust by default.
_MOST_UNKNOWN = 200


@dataclass(frozen=True, slots=True)
class Stage:
    """The values that all steps share."""

    folder: Path
    traffic: Traffic
    config: Config

    @property
    def dsn(self) -> str:
        """The dsn of the database."""
        return self.config.store.dsn.get_secret_value()

    @property
    def delayed(self) -> TableName:
        """The delayed table."""
        delayed: TableName = store(self.config).delayed
        return delayed

    @property
    def queues(self) -> Sequence[TableName]:
        """The queues that messages can go to."""
        addresses = PostgreSqlAddresses(ENDPOINT, SCHEMA)
        return [addresses.parse(address) for address in (*DESTINATIONS, ERROR_QUEUE)]


def settings(folder: Path, dsn: str) -> Settings:
    """The demonstration's settings; all others have their defaults."""
    return {
        "store": {"kind": "postgresql", "dsn": dsn, "endpoint": ENDPOINT, "schema": SCHEMA},
        "retry": {
            "max_attempts": MAX_ATTEMPTS,
            "initial_seconds": RETRY_SECONDS,
            "error_queue": ERROR_QUEUE,
        },
        "ledger": {"root": str(folder / "ledger")},
    }


def traffic_of(messages: int) -> Traffic:
    """`messages` in all: most are due, some are not, a few cannot be delivered."""
    unknown = min(_MOST_UNKNOWN, max(2, messages // 1000))
    unreadable = max(1, unknown // 2)
    not_due = messages // 20
    due = messages - not_due - unknown - unreadable
    return Traffic(due, not_due=not_due, unknown=unknown, unreadable=unreadable)


def create_tables(stage: Stage) -> None:
    """Create what `duesweep setup` does, and the queues of other endpoints."""
    set_up(stage.config)
    with connect(stage.dsn, DEFAULT_TIMEOUTS.driver) as connection:
        for queue in stage.queues:
            connection.script(f"CREATE SCHEMA IF NOT EXISTS {quote_name(queue.schema)}")
            connection.script(text_of("create_queue", {"queue": queue}))


def load_messages(stage: Stage) -> None:
    """Load the messages, and let the database collect statistics."""
    rows = generate(stage.traffic, stored_now(stage.dsn))
    with psycopg.connect(stage.dsn) as connection:
        load(connection, stage.delayed, rows)
        connection.execute(f"ANALYZE {stage.delayed}".encode())
