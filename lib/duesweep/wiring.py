"""Configuration to adapters; the only place that knows which adapter a setting means."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from duesweep.address import PostgreSqlAddresses, TableName
from duesweep.config import Config
from duesweep.drivers.postgresql import database_of
from duesweep.parts import SweepParts
from duesweep.policy import BatchLimits, Retry
from duesweep.queues.base import Queue
from duesweep.queues.postgresql import PostgreSqlQueue
from duesweep.stores.postgresql.setup import set_up, setup_script
from duesweep.stores.postgresql.store import PostgreSqlStore


def parts(config: Config) -> SweepParts:
    """What a sweep with this configuration is made of. Connects to nothing."""
    return SweepParts(
        store=store(config),
        queue=queue(config),
        ledger_root=ledger_root(config.ledger.root),
        limits=BatchLimits(config.sweep.batch_rows, config.sweep.batch_bytes),
        retry=Retry(
            config.retry.max_attempts, config.retry.initial_seconds, config.retry.max_seconds
        ),
        max_exhausted=config.retry.max_exhausted_per_sweep,
        error_queue=config.retry.error_queue,
        slices=config.sweep.slices,
    )


def store(config: Config) -> PostgreSqlStore:
    """The store to sweep."""
    dsn = config.store.dsn.get_secret_value()
    addresses = _addresses(config)
    delayed = TableName(
        config.store.db_schema, config.store.delayed_table or f"{config.store.endpoint}.Delayed"
    )
    return PostgreSqlStore(
        dsn=dsn,
        source=config.store.name or f"{database_of(dsn)}/{delayed.schema}.{delayed.table}",
        delayed=delayed,
        addresses=addresses,
        writer_time_zone=config.store.writer_time_zone,
    )


def queue(config: Config) -> Queue:
    """The queues to deliver to."""
    default = config.queues.get("default")
    own = default.dsn.get_secret_value() if default and default.dsn else None
    return PostgreSqlQueue(_addresses(config), config.store.dsn.get_secret_value(), own)


@dataclass(frozen=True, slots=True)
class Installer:
    """Sets an endpoint up."""

    store: PostgreSqlStore
    error_queue: str | None

    def script(self) -> str:
        """All statements."""
        return setup_script(self.store, self.error_queue)

    def install(self, *, rebind: bool) -> Sequence[TableName]:
        """Create what is missing; the tables created."""
        return set_up(self.store, self.error_queue, rebind=rebind)


def installer(config: Config) -> Installer:
    """What sets this configuration's endpoint up."""
    return Installer(store(config), config.retry.error_queue)


def ledger_root(root: str) -> str:
    """The ledger's root; a relative path is relative to where the command was given."""
    if "/" not in root or ":" in root:
        return root
    return str(Path(root).resolve())


def _addresses(config: Config) -> PostgreSqlAddresses:
    return PostgreSqlAddresses(config.store.endpoint, config.store.db_schema)
