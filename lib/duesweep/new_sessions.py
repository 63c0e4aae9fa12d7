"""Goes on with a slice on new sessions when a service has failed, for a limited time."""

import logging
from collections.abc import Callable

from duesweep.core.breaker import BreakerState, CircuitBreaker
from duesweep.dispatch_job import DispatchJob
from duesweep.errors import StoreError, may_pass
from duesweep.queues.base import QueueSession
from duesweep.stores.abilities import EndsIdleClients
from duesweep.stores.base import TaskSession
from duesweep.texts import make_printable

_STOP_POLL_SECONDS = 0.2

_log = logging.getLogger(__name__)


class SessionBreaker:
    """The circuit breaker of a slice's sessions with store and queues.

    It also counts what a queue got in vain, if that cannot take it back: it gets a batch once more,
    and not again until a batch succeeds.
    """

    def __init__(self, job: DispatchJob) -> None:
        self.circuit = CircuitBreaker(job.breaker, job.clock)
        self._doubles = not job.queue.shares_transaction
        self._is_sending = False
        self._sent_in_vain = 0

    def begin_sending(self) -> None:
        """Note that a batch begins to be delivered."""
        self._is_sending = self._doubles

    def succeed(self, claimed: int) -> None:
        """Note that a batch is committed, with what became of so many messages."""
        self._is_sending = False
        if claimed:
            self._sent_in_vain = 0
        self.circuit.succeed()

    def fail(self, error: StoreError) -> None:
        """Note that the sessions have failed."""
        self._sent_in_vain += self._is_sending
        self._is_sending = False
        may_go_on = may_pass(error) and self._sent_in_vain <= 1
        self.circuit.fail(str(error), is_lasting=not may_go_on)


def run_on_sessions(
    job: DispatchJob, breaker: SessionBreaker, run: Callable[[TaskSession, QueueSession], None]
) -> None:
    """Call `run` with sessions with store and queues, and again with new ones if a service fails.
    It has to go on where it was cut.

    Raises the service's error when the breaker is triggered.
    """
    while True:
        try:
            with job.store.open_task() as store, job.queue.open(store) as queue:
                # A batch for another server may wait for that one.
                if job.queue.shares_transaction and isinstance(store, EndsIdleClients):
                    store.expect_no_idle_client()
                run(store, queue)
            return
        except StoreError as error:
            breaker.fail(error)
            if breaker.circuit.state is BreakerState.TRIGGERED or job.is_stopped():
                raise
            _log.warning(
                "Sweep %s opens new sessions: %s", job.run.sweep_id, make_printable(str(error))
            )
        _wait(job, breaker.circuit.seconds_to_try)


def _wait(job: DispatchJob, seconds: float) -> None:
    """Let so much time pass, or less if the sweep is to stop: the next try is then the last."""
    end = job.clock.seconds() + seconds
    while (left := end - job.clock.seconds()) > 0 and not job.is_stopped():
        job.clock.sleep(min(left, _STOP_POLL_SECONDS))
