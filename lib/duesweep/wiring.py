"""Configuration to adapters; the only place that knows which adapter a setting means."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from duesweep.address import PostgreSqlAddresses, TableName
from duesweep.config import Config
from duesweep.drivers.postgresql import database_of
from duesweep.errors import ConfigError
from duesweep.parts import SweepParts
from duesweep.policy import BatchLimits, Retry
from duesweep.queues.base import Queue
from duesweep.queues.postgresql import PostgreSqlQueue
from duesweep.stores.postgresql.setup import SetupPlan, set_up, setup_script
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
    store_dsn = config.store.dsn.get_secret_value()
    return PostgreSqlQueue(_addresses(config), store_dsn, _queue_dsn(config))


@dataclass(frozen=True, slots=True)
class Installer:
    """Sets an endpoint up."""

    plan: SetupPlan

    def script(self) -> str:
        """All statements."""
        return setup_script(self.plan)

    def install(self, *, rebind: bool) -> Sequence[TableName]:
        """Create what is missing; the tables created."""
        return set_up(self.plan, rebind=rebind)


def installer(config: Config) -> Installer:
    """What sets this configuration's endpoint up."""
    return Installer(SetupPlan(store(config), config.retry.error_queue, _queue_dsn(config)))


def ledger_root(root: str) -> str:
    """The ledger's root; a relative path is relative to where the command was given, and `~` is a
    home. Without a slash it is a catalog schema.
    """
    if ":" in root or not ("/" in root or root.startswith("~")):
        return root
    try:
        return str(Path(root).expanduser().resolve())
    except RuntimeError as error:
        raise ConfigError(
            f"ledger.root is {root!r}, a home that cannot be found; write the path in full"
        ) from error


def _queue_dsn(config: Config) -> str | None:
    default = config.queues.get("default")
    return default.dsn.get_secret_value() if default and default.dsn else None


def _addresses(config: Config) -> PostgreSqlAddresses:
    return PostgreSqlAddresses(config.store.endpoint, config.store.db_schema)
