"""Slices in this process, one after another: for a few messages, without a JVM.

A JVM takes seconds and half a gigabyte before the first message leaves (docs/performance.md).
"""

from dataclasses import dataclass

from duesweep.dispatch import DispatchJob, dispatch_slice, read_claim_keys
from duesweep.stores.base import DriverSession
from duesweep.stores.values import Slices


@dataclass(frozen=True, slots=True)
class InProcessEngine:
    """Reads claim keys over the driver's session."""

    name: str = "in-process"
    spark: None = None
    cores: int = 1

    def dispatch(self, session: DriverSession, plan: Slices, job: DispatchJob) -> None:
        """Dispatch all slices. A store that fails ends its slice, which journals the reason; the
        limits of its waits end a slice whose services are silent.
        """
        for number in range(len(plan.planned)):
            dispatch_slice(job, number, read_claim_keys(session.claim_keys(plan, number)))
