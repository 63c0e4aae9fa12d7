"""What a dialect's wiring does, and which dialect a setting means.

Dialects are imported when they are needed: the drivers of one are of no use to who has the other,
and may be missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from pydantic import SecretStr

from duesweep.config import Config, QueueConfig
from duesweep.doctor.examine import Place
from duesweep.doctor.spark import Needs
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

    def queue_tables(self, connection: QueueConnection, addresses: Sequence[str | None]) -> Any:
        """The tables of queues on a connection, as a tuple; None is the endpoint's own queue."""
        ...

    def store_step(self, config: Config, queues: Any) -> SetupStep:
        """The store's tables, and these tables of queues beside it."""
        ...

    def queue_step(self, connection: QueueConnection, queues: Any) -> SetupStep:
        """These tables of queues on a connection of their own."""
        ...

    def place(self, config: Config, connection: QueueConnection | None, queues: Any) -> Place:
        """What the doctor looks at: the store's database, or a connection's own, with the queues
        there, each as its role and its table.
        """
        ...

    def needs(self, dsns: Sequence[str]) -> Needs:
        """What executors have to load for these dsns."""
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
