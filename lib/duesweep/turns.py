"""When messages of a slice that wait for their destination may go on: it is tried or used again, or
its limit allows more.
"""

from collections.abc import Callable, Sequence

from duesweep.blocked import BlockedMessages
from duesweep.core.destination_breakers import DestinationBreakers
from duesweep.core.rate_limits import Reservation, SliceLimits
from duesweep.dispatch_job import DispatchJob
from duesweep.stores.base import TaskSession
from duesweep.stores.steering import LimitsRates, require

# How often a slice that waits looks whether the sweep is to stop.
_STOP_POLL_SECONDS = 1.0
# A rest that rounding leaves would not move a clock.
_LEAST_WAIT_SECONDS = 0.001
# Runs the batch of these claim keys, and notes what became of it. Returns how many were claimed.
Run = Callable[[Sequence[str]], int]


class Turns:
    """The turns of one slice's destinations. `blocked` has what waits for them."""

    def __init__(
        self,
        job: DispatchJob,
        breakers: DestinationBreakers,
        limits: SliceLimits,
        blocked: BlockedMessages,
    ) -> None:
        self._job = job
        self._breakers = breakers
        self._limits = limits
        self._blocked = blocked

    @property
    def seconds_to_next(self) -> float | None:
        """After how many seconds the next messages may go on; None: none ever may."""
        times = (
            self._breakers.seconds_to_try(self._blocked.failing()),
            self._limits.seconds_to_next,
        )
        return min((seconds for seconds in times if seconds is not None), default=None)

    def wait(self, store: TaskSession, seconds: float) -> None:
        """Let so much time pass; raise if the sweep is to stop meanwhile, or is closed."""
        clock = self._job.clock
        end = clock.seconds() + max(seconds, _LEAST_WAIT_SECONDS)
        while end > clock.seconds():
            # Before the rest, not after it: what may go on at the end of it goes at once.
            with store.transaction():
                store.claim(self._job.run, ())
            self._job.progressed()
            if (left := end - clock.seconds()) > 0:
                clock.sleep(min(max(left, _LEAST_WAIT_SECONDS), _STOP_POLL_SECONDS))

    def try_destinations(self, store: TaskSession, run: Run) -> None:
        """Run what waits for destinations that can be tried, or used, again."""
        for address in self._breakers.due(self._blocked.failing):
            with self._breakers.trying(address):
                run(self._blocked.take(store, address))

    def go_on(self, store: TaskSession, run: Run) -> None:
        """Run all that may go on now, what waits for a limit too. Not between other batches: they
        take longer than a reservation may wait.
        """
        self.try_destinations(store, run)
        self._reserve(store)
        for reservation in self._limits.due(self._blocked.limited()):
            with self._limits.passing(reservation.address):
                self._use(store, reservation, run)
        self._reserve(store)

    def _use(self, store: TaskSession, reservation: Reservation, run: Run) -> None:
        """Claim as many messages as are reserved. If others have taken some: the next ones."""
        address, left = reservation.address, reservation.messages
        while left > 0 and address in self._blocked.limited():
            left -= run(self._blocked.take(store, address, left))

    def _reserve(self, store: TaskSession) -> None:
        waiting = self._blocked.limited()
        if waiting:
            limiting = require(store, LimitsRates, "sweep with [[limit]]", self._job.store.source)  # type: ignore[type-abstract] # a protocol
            self._limits.reserve(waiting, limiting.reserve)
