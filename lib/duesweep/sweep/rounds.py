"""When to plan the messages again that a sweep left in the store. Without I/O.

A slice waits for no outage. So a sweep that leaves messages because of one is followed by another
round, a sweep of its own, in which each destination that failed is tried with one message: until
nothing is left, or the outage has lasted for the time to trigger. The ticks of a watcher are rounds
too, without an end.
"""

from collections.abc import Sequence
from dataclasses import replace

from duesweep.core.account import (
    CUT,
    SERVICES,
    BreakerReport,
    BreakerState,
    SliceEnd,
    SweepReport,
)
from duesweep.core.errors import StoreError, may_pass
from duesweep.core.policy import PAUSE_PER_TRY, BreakerTimes
from duesweep.core.world import Clock
from duesweep.stores.due import Horizon
from duesweep.sweep.destinations import CircuitBreaker
from duesweep.sweep.limits import Limited
from duesweep.sweep.low_water import LowWater

# A destination that is available again gets its messages within about this time.
_LONGEST_REST_SECONDS = 1.5
# After rounds that take long although they move nothing.
_LONGEST_PAUSE_SECONDS = 6.0
# An open sweep lets this many blocked messages a second be planned again, so that messages of
# available destinations rarely wait for that; and it rests at most this long.
_PLANNED_AGAIN_PER_SECOND, _LONGEST_OPEN_PAUSE_SECONDS = 50_000, 10.0


# Messages that were sent to a queue which cannot take them back arrive again. So a run does that in
# two rounds in a row at most, and in this many in all.
_MOST_SENT_IN_VAIN = 5


class Rounds:
    """The rounds of one run of `sweep`; or of a watcher, which `never_ends`: a destination
    is still tried after the time to trigger. `batch_rows` is the size of a full batch. `is_single`:
    there is one round.
    """

    def __init__(
        self,
        times: BreakerTimes,
        clock: Clock,
        batch_rows: int = 1,
        *,
        never_ends: bool = False,
        is_single: bool = False,
    ) -> None:
        self._times, self._clock, self._batch_rows = times, clock, batch_rows
        self._never_ends, self._is_single = never_ends, is_single
        self.began = self._ended = self._noted = clock.seconds()
        # Whether this round's sweep continued after it.
        self._went_on = False
        self._services = CircuitBreaker(times, clock)
        self.low_water = LowWater(clock)
        self.limited = Limited()
        # The destinations that messages were left for, by their names.
        self._destinations: dict[str, BreakerReport] = {}
        # Whether messages that were left may go now.
        self._is_any_back = False
        # Whether sessions were lost since the last report.
        self._are_lost = False
        # How many rounds in a row moved nothing.
        self._in_vain = 0
        # Rounds that lost messages which they had sent: in all, and without a full batch since.
        self._sent_in_vain = self._sent_again = 0

    def begin(self) -> None:
        self.began, self._went_on = self._clock.seconds(), False
        self.low_water.begin()

    def note(self, report: SweepReport, *, is_part: bool = False) -> None:
        """Note the end of a round. `is_part`: it did not plan again what earlier ones left."""
        were_out, kept = self.are_services_out, self._continued if is_part else ()
        open_seconds = {one.name: one.seconds for one in self._continued if self._went_on}
        self._end(report.claimed)
        self._noted = self._clock.seconds()
        lost = [one for one in report.breakers if one.name == SERVICES]
        self._count_sent(report.claimed, is_in_vain=any(one.left for one in lost))
        for one in lost:
            self._lose(one.reason, is_lasting=one.state == BreakerState.TRIGGERED)
        if report.left and report.reason == CUT:
            self._lose(CUT)
        elif not (lost and report.left):
            # If a session was lost, another one has done its work.
            self._services.succeed()
        holding = [one for one in report.breakers if one.left and one.name != SERVICES]
        # A message that was refused for its own fault, and stays, moves nothing.
        is_back = report.claimed > 0 and any(one.is_closed for one in holding)
        self._destinations = {one.name: one for one in kept}
        if is_part:
            is_back |= self._is_any_back or (were_out and not self.are_services_out)
        self._is_any_back = is_back
        for one in holding:
            self._destinations.pop(one.name, None)
            if not one.is_closed:
                seconds = max(one.seconds, open_seconds.get(one.name, 0.0))
                until_now = replace(one, seconds=seconds)
                self._destinations[one.name] = self._untried(until_now, report.claimed)

    def go_on(self, horizon: Horizon, end: SliceEnd, *, waits: bool = False) -> bool:
        """Note a round of a sweep that may continue. Returns whether it does: nothing was left, or
        only messages whose destinations are unavailable, which the next sweep tries; or other
        messages wait for their limit (`waits`) as long as it is open.
        """
        # With no time to trigger, each round would try them.
        is_blocked = end.left_blocked and self._times.trigger_seconds > 0
        if not (waits or end.left_nothing or is_blocked):
            return False
        destinations = {one.name: one for one in self._continued}
        for one in end.breakers:
            destinations.pop(one.name, None)
            if not one.is_closed:
                destinations[one.name] = one
        self._destinations, self._noted = destinations, self._clock.seconds()
        if not self._went_on:
            self._ended, self._went_on = self._noted, True
        # Until then no look is at messages before the mark, whatever their destination.
        rest = max(
            min(self._rest, _LONGEST_REST_SECONDS),
            min(_LONGEST_OPEN_PAUSE_SECONDS, end.account.left / _PLANNED_AGAIN_PER_SECOND),
        )
        if waits:
            self.low_water.hold(horizon)
        has_left = end.reason is not None or end.account.left + end.account.skipped > 0
        self.low_water.clear(horizon, rest if has_left else None)
        return True

    def fail(self, error: StoreError) -> None:
        """Note a round that could not begin, or not be closed."""
        self._end(0)
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
        found = [*self._continued]
        if self.are_services_out:
            found.append(self._services.report(SERVICES, 0, self._clock.now()))
        if not self._never_ends:
            return tuple(found)
        # With no time to trigger, a breaker is triggered before it is tried.
        return tuple(map(self._begun_again, found) if self._times.trigger_seconds else ())

    @property
    def _continued(self) -> Sequence[BreakerReport]:
        """The breakers of destinations, with their seconds until now."""
        since = self._clock.seconds() - self._noted
        destinations = self._destinations.values()
        return [replace(one, seconds=one.seconds + since) for one in destinations]

    @property
    def seconds_to_next(self) -> float | None:
        """How long to rest before the next round; None: nothing that was left can go in time."""
        if self._is_single:
            return None
        if self.are_services_out:
            lasts = [self._services.open_seconds]
            if self._services.state is BreakerState.TRIGGERED:
                return None
        elif self._is_any_back:
            return 0.0
        else:
            lasts = [one.seconds for one in self.outages if one.state == BreakerState.OPEN]
        rest = self._rest
        if not lasts or min(lasts) + rest >= self._times.trigger_seconds:
            return None
        return rest

    def with_services(self, report: SweepReport) -> SweepReport:
        """The report of all rounds, with the breaker of store and queues if it opened."""
        if not self._are_lost:
            return report
        self._are_lost = False
        others = (one for one in report.breakers if one.name != SERVICES)
        services = self._services.report(SERVICES, 0, self._clock.now())
        return replace(report, breakers=(*others, services))

    @property
    def _rest(self) -> float:
        least = 1 / self._times.recovery_failures_per_second
        doublings = min(max(0, self._in_vain - 1), 20)
        rest = max(least, min(_LONGEST_REST_SECONDS, least * 2.0**doublings))
        if self._in_vain and not self.are_services_out:
            # It may have waited for locks, while it held others.
            took = self._ended - self.began
            rest = max(rest, min(_LONGEST_PAUSE_SECONDS, PAUSE_PER_TRY * took))
        return rest

    def _untried(self, one: BreakerReport, claimed: int) -> BreakerReport:
        """A breaker that triggered while its slice did other work gets one more try."""
        trigger_seconds = self._times.trigger_seconds
        is_overdue = one.state == BreakerState.TRIGGERED and one.seconds >= trigger_seconds > 0
        if not (is_overdue and claimed):
            return one
        seconds = max(0.0, trigger_seconds - 2 * self._rest)
        return replace(one, state=BreakerState.OPEN.value, seconds=seconds)

    def _count_sent(self, claimed: int, *, is_in_vain: bool) -> None:
        if claimed >= self._batch_rows:
            self._sent_again = 0
        self._sent_again += is_in_vain
        self._sent_in_vain += is_in_vain

    def _lose(self, reason: str, *, is_lasting: bool = False) -> None:
        too_often = self._sent_again > 1 or self._sent_in_vain >= _MOST_SENT_IN_VAIN
        self._services.fail(reason, is_lasting=is_lasting or too_often)
        self._are_lost = True

    def _begun_again(self, one: BreakerReport) -> BreakerReport:
        is_over = one.seconds >= self._times.trigger_seconds
        return replace(one, state=BreakerState.OPEN.value, seconds=0.0 if is_over else one.seconds)

    def _end(self, claimed: int) -> None:
        if not self._went_on:
            self._ended = self._clock.seconds()
        self._in_vain = 0 if claimed else self._in_vain + 1
        if claimed:
            self._services.succeed()
