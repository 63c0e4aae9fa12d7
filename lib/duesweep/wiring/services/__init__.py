"""What the doctor checks in a dialect's databases. A sweep does not import this package."""

from collections.abc import Callable, Sequence
from importlib import import_module  # noqa: TID251 - of this package
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
        """What the doctor checks: the store's database, or that of `connection`. `queues` returns
        the role and table of each queue there; it is called when the doctor checks.
        """
        ...

    def waiting(self, config: Config, most: int) -> Sequence[str]:
        """Destinations of the `most` messages that are due first in the store, without the
        endpoint's own queue.
        """
        ...

    def needs(self, dsns: Sequence[str]) -> Needs:
        """What executors have to load for these dsns."""
        ...


def services(dialect: str) -> Services:
    """The module of a dialect."""
    module: Services = import_module(f"duesweep.wiring.services.{dialect}")
    return module
