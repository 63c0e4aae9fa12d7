"""The contract of an engine."""

from typing import TYPE_CHECKING, Protocol

from duesweep.dispatch_job import DispatchJob
from duesweep.stores.base import DriverSession
from duesweep.stores.values import Slices

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Engine(Protocol):
    """Runs all slices of a plan. The guarantee does not depend on it: the store's transactions let
    any slice run twice, or end anywhere.
    """

    @property
    def name(self) -> str:
        """As `sweeps` and the summary show it."""
        ...

    @property
    def spark(self) -> "SparkSession | None":
        """The session with which the ledger may be written; None: there is none."""
        ...

    def slices(self, wanted: int) -> int:
        """How many slices a plan has at most; `wanted` is the setting, 0: not set."""
        ...

    def dispatch(self, session: DriverSession, plan: Slices, job: DispatchJob) -> str | None:
        """Dispatch all slices. Returns why the engine ended before all were done; None where all
        were.
        """
        ...
