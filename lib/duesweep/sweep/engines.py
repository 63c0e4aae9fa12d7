"""The contract of an engine."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import structlog

from duesweep.core.errors import DuesweepError
from duesweep.stores.base import DriverSession, Slices
from duesweep.sweep.job import Job
from duesweep.sweep.slice import dispatch_slice, read_claim_keys

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

    def dispatch(self, session: DriverSession, plan: Slices, job: Job) -> str | None:
        """Dispatch all slices. Returns why the engine ended before all were done; None where all
        were.
        """
        ...


_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class InProcessEngine:
    """Reads claim keys over the driver's session. `progressed`: see `Job`."""

    name: str = "in-process"
    spark: None = None
    progressed: Callable[[], object] | None = None

    def slices(self, wanted: int) -> int:  # noqa: ARG002 - the contract's
        """One: a service that is silent is waited for once, and nothing runs beside it."""
        return 1

    def dispatch(self, session: DriverSession, plan: Slices, job: Job) -> str | None:
        """Dispatch all slices. A store that fails ends its slice, which journals the reason; the
        limits of its waits end a slice whose services are silent. Returns an unforeseen error,
        whose slice counts as cut.
        """
        reason: str | None = None
        if self.progressed is not None:
            job = replace(job, progressed=self.progressed)
        for number in range(len(plan.planned)):
            claim_keys = read_claim_keys(session.claim_keys(plan, number))
            try:
                dispatch_slice(job, number, claim_keys)
            except DuesweepError:
                raise
            except Exception as error:  # noqa: BLE001 - of whatever kind
                # As on Spark: the other slices go on, and the sweep is closed with the reason.
                reason = (
                    f"An unforeseen error ended a slice: {type(error).__name__}: {error}; please "
                    "report this, with what the log says"
                )
                _log.exception("slice_failed", sweep_id=str(job.run.sweep_id), slice=number)
        return reason
