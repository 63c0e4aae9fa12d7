"""What a dialect's wiring does, and which dialect a setting means.

Dialects are imported when they are needed: the drivers of one are of no use to who has the other,
and may be missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from pydantic import SecretStr

from duesweep.config import DEFAULT_SCHEMAS, Config, QueueConfig
from duesweep.errors import ConfigError
from duesweep.queues.base import Queue
from duesweep.stores.base import Store


@dataclass(frozen=True, slots=True)
class QueueConnection:
    """A section of queues, with what it leaves open filled in."""

    config: Config
    name: str
    kind: str
    dsn: SecretStr | None
    schema: str | None
    is_routed: bool

    @property
    def setting(self) -> str:
        """The section's name."""
        return f"queues.{self.name}"

    def schema_in(self, dialect: str) -> str:
        """The schema of unqualified addresses: the store's, where that is of the same dialect or
        its users know, else the dialect's own.
        """
        store = self.config.store
        is_shared = store.is_brought or store.dialect == dialect
        return self.schema or (is_shared and store.db_schema) or DEFAULT_SCHEMAS[dialect]


class SetupStep(Protocol):
    """What is to be created in one place; `setting` names the place."""

    @property
    def setting(self) -> str:
        """The setting that names the database."""
        ...

    def script(self) -> str:
        """All statements."""
        ...

    def install(self, *, rebind: bool) -> Sequence[object]:
        """Create what is missing; what was created."""
        ...


class Dialect(Protocol):
    """One module of the wiring."""

    def store(self, config: Config) -> Store:
        """The store of this dialect that the configuration names."""
        ...

    def queue(self, connection: QueueConnection) -> Queue:
        """The queues of a connection."""
        ...

    def holds(self, store: Store) -> bool:
        """Whether queues without a dsn can be in this store's transaction."""
        ...

    def queue_tables(self, connection: QueueConnection, addresses: Sequence[str | None]) -> Any:
        """The tables of queues on a connection, as a tuple; None is the endpoint's own queue."""
        ...

    def store_step(self, config: Config, queues: Any) -> SetupStep:
        """The store's tables, and these tables of queues beside it."""
        ...

    def queue_step(self, connection: QueueConnection, queues: Any) -> SetupStep:
        """These tables of queues apart from a store's: on a connection of their own, or beside a
        store that sets itself up.
        """
        ...


def dialect(name: str) -> Dialect:
    """The wiring of a dialect."""
    module: Dialect = import_module(f"duesweep.wiring.{name}")
    return module


def connections(config: Config) -> dict[str, QueueConnection]:
    """The queue connections by their names; without any, the store's own server."""
    is_routed = bool(config.route)
    sections = config.queues or {"default": QueueConfig()}
    return {
        name: QueueConnection(
            config,
            name,
            section.kind or config.store.dialect,
            section.dsn,
            section.db_schema,
            is_routed,
        )
        for name, section in sections.items()
    }


def refuse_apart(connection: QueueConnection, store: Store) -> None:
    """Raise `ConfigError` where a connection without a dsn would have to be a brought store's, and
    that one has no transaction which its queues could be in.
    """
    settings = connection.config.store
    if not settings.is_brought or connection.dsn is not None:
        return
    if not dialect(connection.kind).holds(store):
        raise ConfigError(
            f"{connection.setting}.dsn is not set, and {settings.kind} is no subclass of the store "
            f"of kind {connection.kind} that comes along, whose transaction queues can share; set "
            f"{connection.setting}.dsn"
        )
