"""What the wiring of a dialect does, and which dialect a setting means.

A dialect is imported only when it is needed: the driver of another dialect may be missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module  # noqa: TID251 - of `wiring`
from typing import Any, Protocol

from pydantic import SecretStr

from duesweep.config import DEFAULT_SCHEMAS, Config, QueueConfig
from duesweep.core.errors import ConfigError
from duesweep.core.policy import Timeouts
from duesweep.queues.base import Queue
from duesweep.stores.base import Store


@dataclass(frozen=True, slots=True)
class QueueConnection:
    """A section [queues.<name>], with its defaults."""

    config: Config
    name: str
    kind: str
    section: QueueConfig
    is_routed: bool
    needs_ladder: bool

    @property
    def dsn(self) -> SecretStr | None:
        """The dsn of its own database; None: it has none."""
        return self.section.dsn

    @property
    def is_beside(self) -> bool:
        """Whether its queues are on the store's own server, and in its transaction."""
        return self.kind != "rabbitmq" and self.dsn is None

    @property
    def setting(self) -> str:
        """The section's name."""
        return f"queues.{self.name}"

    def schema_in(self, dialect: str) -> str:
        """The schema of addresses without one: the section's, else the store's if that has this
        dialect or is custom, else the dialect's default.
        """
        store = self.config.store
        is_shared = store.is_custom or store.dialect == dialect
        return self.section.db_schema or (is_shared and store.db_schema) or DEFAULT_SCHEMAS[dialect]


class SetupStep(Protocol):
    """What `setup` creates in one database; `setting` names the database."""

    @property
    def setting(self) -> str:
        """The setting that names the database."""
        ...

    def script(self) -> str:
        """All statements."""
        ...

    def grants(self, role: str) -> str:
        """The statements that grant a role what sweeps need there."""
        ...

    def install(self, *, rebind: bool) -> Sequence[object]:
        """Create what is missing. Returns what was created."""
        ...


class QueueKind(Protocol):
    """The wiring of a kind of queue."""

    def queue(self, connection: QueueConnection) -> Queue:
        """The queues of a connection."""
        ...

    def queue_tables(self, connection: QueueConnection, addresses: Sequence[str | None]) -> Any:
        """The tables (or names) of queues on a connection, as a tuple; None: the own queue."""
        ...

    def queue_step(self, connection: QueueConnection, queues: Any) -> SetupStep:
        """The step that creates these queues without a store's tables: on a connection of their
        own, or beside a custom store.
        """
        ...


class Dialect(QueueKind, Protocol):
    """One module of the wiring: a database's dialect, with its stores and its queues."""

    def store(self, config: Config) -> Store:
        """The store of this dialect that the configuration names."""
        ...

    def holds(self, store: Store) -> bool:
        """Whether queues without a dsn can be in this store's transaction."""
        ...

    def store_step(self, config: Config, queues: Any, readable: Any) -> SetupStep:
        """The step that creates the store's tables, and beside them the table of subscriptions and
        these queue tables, of which `readable` have readable bodies.
        """
        ...


def queue_kind(name: str) -> QueueKind:
    """The wiring of a kind of queue."""
    module: QueueKind = import_module(f"duesweep.wiring.{name}")
    return module


def dialect(name: str) -> Dialect:
    """The wiring of a dialect."""
    module: Dialect = import_module(f"duesweep.wiring.{name}")
    return module


def connections(config: Config, *, needs_ladder: bool = False) -> dict[str, QueueConnection]:
    """The queue connections by name. Without any section it is one, on the store's own server.
    `needs_ladder`: connections to RabbitMQ have to hold messages until they are due.
    """
    is_routed = bool(config.route)
    ahead = needs_ladder or bool(config.sweep.look_ahead_seconds)
    return {
        name: QueueConnection(
            config,
            name,
            section.kind or config.store.dialect,
            section,
            is_routed,
            ahead,
        )
        for name, section in config.connections.items()
    }


def timeouts_of(config: Config) -> Timeouts:
    """The limits on waiting for a silent service."""
    return Timeouts(config.timeouts.silence_seconds)


def check_shared_transaction(connection: QueueConnection, store: Store) -> None:
    """Raise `ConfigError` where a connection has no dsn, but the custom store has no transaction
    that its queues could share.
    """
    settings = connection.config.store
    if not settings.is_custom or not connection.is_beside:
        return
    if not dialect(connection.kind).holds(store):
        raise ConfigError(
            f"{connection.setting}.dsn is not set, but the queues cannot share the transaction of "
            f"{settings.kind}: it is not a subclass of duesweep's store of kind {connection.kind}",
            advice=f"set {connection.setting}.dsn",
        )
