"""What a dialect's wiring does, and which dialect a setting means.

Dialects are imported when they are needed: the drivers of one are of no use to who has the other,
and may be missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

from pydantic import SecretStr

from duesweep.config import Config, QueueConfig
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

    def store_step(self, config: Config, queues: Sequence[str | None]) -> SetupStep:
        """The store's tables, and queues beside it; an address of None is the endpoint's own."""
        ...

    def queue_step(self, connection: QueueConnection, queues: Sequence[str | None]) -> SetupStep:
        """Queues on a connection of their own."""
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
