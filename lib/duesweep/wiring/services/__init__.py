"""What the doctor looks at in a dialect's databases. Apart: a sweep does without the doctor."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Protocol

from duesweep.config import Config
from duesweep.doctor.examine import Service
from duesweep.doctor.spark import Needs
from duesweep.wiring.dialects import QueueConnection


class Services(Protocol):
    """One module of this package."""

    def service(
        self,
        config: Config,
        connection: QueueConnection | None,
        queues: Callable[[], Sequence[tuple[str, Any]]],
    ) -> Service:
        """What the doctor looks at: the store's database, or a connection's own, with the queues
        there, each as its role and its table; which they are is asked when it looks.
        """
        ...

    def waiting(self, config: Config, most: int) -> Sequence[str]:
        """Destinations of the messages that are due first in the store, so many of them, but for
        the endpoint's own queue.
        """
        ...

    def needs(self, dsns: Sequence[str]) -> Needs:
        """What executors have to load for these dsns."""
        ...


def services(dialect: str) -> Services:
    """The places of a dialect."""
    module: Services = import_module(f"duesweep.wiring.services.{dialect}")
    return module
