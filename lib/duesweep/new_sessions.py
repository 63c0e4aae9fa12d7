"""Goes on with a slice on new sessions when a service has failed, for a limited time."""

import logging
from typing import Protocol

from duesweep.core.breaker import BreakerState, CircuitBreaker
from duesweep.dispatch_job import DispatchJob
from duesweep.errors import StoreError
from duesweep.queues.base import QueueSession
from duesweep.stores.base import TaskSession

_log = logging.getLogger(__name__)


class Resumable(Protocol):
    """Work that goes on where it was cut when it is run again, on new sessions."""

    def run(self, store: TaskSession, queue: QueueSession) -> None:
        """Do what is left of it."""
        ...

    def may_go_on(self, error: StoreError) -> bool:
        """Whether it may be run again after this error."""
        ...


def run_on_sessions(job: DispatchJob, breaker: CircuitBreaker, work: Resumable) -> None:
    """Run the work on sessions with store and queues, and again on new ones if a service fails.

    Raises the service's error when `breaker` is triggered, or if the work may not go on. The work
    notes its successes in `breaker`.
    """
    while True:
        try:
            with job.store.open_task() as store, job.queue.open(store) as queue:
                work.run(store, queue)
            return
        except StoreError as error:
            may_go_on = work.may_go_on(error)
            breaker.fail(str(error), is_lasting=not may_go_on)
            if breaker.state is BreakerState.TRIGGERED:
                raise
            _log.warning("Sweep %s opens new sessions: %s", job.run.sweep_id, error)
        job.clock.sleep(breaker.seconds_to_try)
