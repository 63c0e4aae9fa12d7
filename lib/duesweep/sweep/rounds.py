"""When to plan the messages again that a sweep left in the store. Without I/O.

A slice waits for no outage. So a sweep that leaves messages because of one is followed by another
round, a sweep of its own, in which each destination that failed is tried with one message: until
nothing is left, or the outage has lasted for the time to trigger. The ticks of a watcher are rounds
too, without an end.
"""

from dataclasses import replace

from duesweep.core.account import CUT, SERVICES, BreakerReport, BreakerState, SweepReport
from duesweep.core.errors import StoreError, may_pass
from duesweep.core.policy import PAUSE_PER_TRY, BreakerTimes
from duesweep.core.world import Clock
from duesweep.sweep.destinations import CircuitBreaker

# A destination that is available again gets its messages within about this time.
_LONGEST_REST_SECONDS = 1.5
# After rounds that take long although they move nothing.
_LONGEST_PAUSE_SECONDS = 6.0


class Rounds:
    """The rounds of one run of `sweep`; or of a watcher, which `never_ends`: a destination
    is still tried after the time to trigger.
    """

    def __init__(self, times: BreakerTimes, clock: Clock, *, never_ends: bool = False) -> None:
        self._times, self._clock = times, clock
        self._never_ends = never_ends
        self._began = self._ended = clock.seconds()
        self._services = CircuitBreaker(times, clock)
        # The destinations that messages were left for at the end of the last round.
        self._destinations: tuple[BreakerReport, ...] = ()
        # Whether one of them takes messages again.
        self._is_any_back = False
        # Whether sessions were lost since the last report.
        self._are_lost = False
        # How many rounds in a row moved nothing.
        self._in_vain = 0

    def begin(self) -> None:
        self._began = self._clock.seconds()

    def note(self, report: SweepReport) -> None:
        """Note the end of a round."""
        self._end(moved=report.claimed > 0)
        lost = [one for one in report.breakers if one.name == SERVICES]
        for one in lost:
            self._lose(one.reason, is_lasting=one.state == BreakerState.TRIGGERED)
        if report.left and report.reason == CUT:
            self._lose(CUT)
        elif not (lost and report.left):
            # If a session was lost, another one has done its work.
            self._services.succeed()
        holding = [one for one in report.breakers if one.left and one.name != SERVICES]
        # A message that was refused for its own fault, and stays, moves nothing.
        self._is_any_back = report.claimed > 0 and any(one.is_closed for one in holding)
        self._destinations = tuple(one for one in holding if not one.is_closed)

    def fail(self, error: StoreError) -> None:
        """Note a round that could not begin, or not be closed."""
        self._end(moved=False)
        self._lose(str(error), is_lasting=not may_pass(error))

    @property
    def are_services_out(self) -> bool:
        """Whether the last round lost its sessions with the store or the queues."""
        return not self._services.is_closed

    @property
    def is_in_vain(self) -> bool:
        """Whether the last round moved nothing."""
        return self._in_vain > 0

    @property
    def outages(self) -> tuple[BreakerReport, ...]:
        """The breakers that the last round left open, with their seconds until now."""
        since = self._clock.seconds() - self._ended
        found = [replace(one, seconds=one.seconds + since) for one in self._destinations]
        if self.are_services_out:
            found.append(self._services.report(SERVICES, 0, self._clock.now()))
        return tuple(map(self._begun_again, found) if self._never_ends else found)

    def with_services(self, report: SweepReport) -> SweepReport:
        """The report of all rounds, with the breaker of store and queues if it opened."""
        if not self._are_lost:
            return report
        self._are_lost = False
        others = (one for one in report.breakers if one.name != SERVICES)
        services = self._services.report(SERVICES, 0, self._clock.now())
        return replace(report, breakers=(*others, services))

    def _lose(self, reason: str, *, is_lasting: bool = False) -> None:
        self._services.fail(reason, is_lasting=is_lasting)
        self._are_lost = True

    def _begun_again(self, one: BreakerReport) -> BreakerReport:
        is_over = one.seconds >= self._times.trigger_seconds
        return replace(one, state=BreakerState.OPEN.value, seconds=0.0 if is_over else one.seconds)

    @property
    def seconds_to_next(self) -> float | None:
        """How long to rest before the next round; None: nothing that was left can go in time."""
        if self._is_any_back and not self.are_services_out:
            return 0.0
        least = 1 / self._times.recovery_failures_per_second
        doublings = min(max(0, self._in_vain - 1), 20)
        rest = max(least, min(_LONGEST_REST_SECONDS, least * 2.0**doublings))
        if self._in_vain and not self.are_services_out:
            # It may have waited for locks, while it held others.
            took = self._ended - self._began
            rest = max(rest, min(_LONGEST_PAUSE_SECONDS, PAUSE_PER_TRY * took))
        lasts = [one.seconds for one in self.outages if one.state == BreakerState.OPEN]
        if not lasts or min(lasts) + rest >= self._times.trigger_seconds:
            return None
        return rest

    def _end(self, *, moved: bool) -> None:
        self._ended = self._clock.seconds()
        self._in_vain = 0 if moved else self._in_vain + 1
        if moved:
            self._services.succeed()
