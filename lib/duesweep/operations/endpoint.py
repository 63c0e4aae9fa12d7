"""An endpoint, as all operations take it: its configuration, and its parts, made once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from duesweep.config import Config
from duesweep.config.adapters.context import sweep_context
from duesweep.sweep.job import SweepContext
from duesweep.sweep.stop import Stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Endpoint", "Stop"]


@dataclass(frozen=True)
class Endpoint:
    """The endpoint of a configuration. `spark` is the session to use, also one of Spark Connect;
    None: the existing one, or if Spark is needed, a new one. `options` name it on a command line.
    """

    config: Config
    spark: "SparkSession | None" = None
    options: Sequence[str] = ()

    @cached_property
    def context(self) -> SweepContext:
        """The configured store, queues, ledger and limits."""
        return sweep_context(self.config)

    @property
    def source(self) -> str:
        """The stable name of its store."""
        return self.context.store.source
