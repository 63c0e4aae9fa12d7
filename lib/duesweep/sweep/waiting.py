"""What may not go yet, and when it may: circuit breakers, limits, and a slice's messages that wait.

A breaker says when to leave alone what has failed, and when to try it again: closed → open at a
failure → tried again after a pause → closed at a success. A breaker that has been open for the time
to trigger, or whose fault does not pass by itself, is not tried again.

Without I/O: the store counts what all slices and sweeps have reserved (`TaskSession.reserve`).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from duesweep.core.account import SERVICES, BreakerReport, BreakerState
from duesweep.core.message import Address
from duesweep.core.policy import BatchLimits, BreakerLimits, RateLimit, RateLimits
from duesweep.core.world import Clock
from duesweep.stores.base import TaskSession
from duesweep.sweep.job import Job


class CircuitBreaker:
    """The breaker of one service or one destination, within one slice.

    A failure after a success begins a new time to trigger. Unless `forgives_at_once`, it goes on
    with the time before if it worked for a shorter time than it had failed.
    """

    def __init__(
        self, limits: BreakerLimits, clock: Clock, *, forgives_at_once: bool = True
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._forgives_at_once = forgives_at_once
        self._opened_at: float | None = None
        self._closed_at: float | None = None
        self._try_at = 0.0
        self._is_lasting = False
        self._reason = ""

    @property
    def state(self) -> BreakerState:
        """Its state now."""
        if self._opened_at is None or self._closed_at is not None:
            return BreakerState.CLOSED
        is_over = self._clock.seconds() >= self._triggers_at
        return BreakerState.TRIGGERED if is_over or self._is_lasting else BreakerState.OPEN

    @property
    def is_closed(self) -> bool:
        """Whether it is in use."""
        return self.state is BreakerState.CLOSED

    @property
    def reason(self) -> str:
        """Why it opened, or could not be closed, last; empty if it never opened."""
        return self._reason

    @property
    def open_seconds(self) -> float:
        """For how long it has been open, or was open the last time; 0 if it never was."""
        if self._opened_at is None:
            return 0.0
        until = self._clock.seconds() if self._closed_at is None else self._closed_at
        return until - self._opened_at

    @property
    def opened_seconds_ago(self) -> float:
        """How long ago it opened the last time; 0 if it never did."""
        return 0.0 if self._opened_at is None else self._clock.seconds() - self._opened_at

    @property
    def seconds_to_try(self) -> float:
        """How long to leave it alone from now on, if it is open."""
        return max(0.0, self._try_at - self._clock.seconds())

    def fail(self, reason: str, *, took_seconds: float = 0.0, is_lasting: bool = False) -> None:
        """Note a failure that took so long. `is_lasting`: the fault does not pass by itself."""
        now = self._clock.seconds()
        if self.is_closed:
            # The time in which it worked does not count.
            failed_before = self.open_seconds if self._counts_on else 0.0
            self._opened_at = now - failed_before
        self._closed_at = None
        self._reason = reason
        self._is_lasting = is_lasting
        # Nobody waits longer than until it is triggered.
        pause_seconds = self._limits.pause_seconds(took_seconds)
        self._try_at = min(now + pause_seconds, self._triggers_at)

    @property
    def _counts_on(self) -> bool:
        """Whether a failure goes on with the time before: it worked for a shorter time than it had
        failed.
        """
        if self._forgives_at_once or self._closed_at is None:
            return False
        return self._clock.seconds() - self._closed_at < self.open_seconds

    @property
    def seconds_left(self) -> float:
        """How long it is until it is triggered, if it is open."""
        return max(0.0, self._triggers_at - self._clock.seconds())

    @property
    def _triggers_at(self) -> float:
        """When it is triggered. An instant, because differences are rounded: what is open has to be
        tried later than now.
        """
        opened_at = self._clock.seconds() if self._opened_at is None else self._opened_at
        return opened_at + self._limits.trigger_seconds

    def succeed(self) -> None:
        """Note a success."""
        if not self.is_closed:
            self._closed_at = self._clock.seconds()
            self._is_lasting = False


class DestinationBreakers:
    """One breaker for each destination that has failed in this slice.

    A destination that failed is tried again with one message. All destinations together are tried
    in vain as often as one may be.
    """

    def __init__(self, limits: BreakerLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._breakers: dict[Address, CircuitBreaker] = {}
        self._try_at = 0.0
        # Why a destination cannot defer messages. It still takes what is due.
        self.cannot_defer: dict[Address, str] = {}
        # The destination that is being tried; empty if none is.
        self._tried: tuple[Address, ...] = ()

    @property
    def all_closed(self) -> bool:
        """Whether all destinations take messages, as far as is known."""
        return all(breaker.is_closed for breaker in self._breakers.values())

    @property
    def reasons(self) -> set[str]:
        """Why destinations take nothing now, or cannot defer messages."""
        closed = {one.reason for one in self._breakers.values() if not one.is_closed}
        return closed | set(self.cannot_defer.values())

    def takes(self, address: Address) -> bool:
        """Whether messages may go to a destination."""
        return self.state(address) is BreakerState.CLOSED

    def is_tried(self, address: Address) -> bool:
        """Whether a destination that failed is being tried, with one message."""
        return address in self._tried and not self.takes(address)

    def is_due(self, address: Address) -> bool:
        """Whether a destination can be used, or tried, now."""
        return not self._seconds_to_try(address)

    def state(self, address: Address) -> BreakerState:
        """The state of a destination's breaker."""
        breaker = self._breakers.get(address)
        return BreakerState.CLOSED if breaker is None else breaker.state

    def opened(self) -> dict[Address, CircuitBreaker]:
        """The breakers that are open, or were."""
        return dict(self._breakers)

    def fail(
        self, address: Address, reason: str, *, took_seconds: float, is_lasting: bool = False
    ) -> None:
        """Note that a destination took nothing, which was found out within so many seconds.
        `is_lasting`: the fault does not pass by itself.
        """
        if address not in self._breakers:
            # What takes one message and refuses the many that follow has not recovered.
            breaker = CircuitBreaker(self._limits, self._clock, forgives_at_once=False)
            self._breakers[address] = breaker
        self._breakers[address].fail(reason, took_seconds=took_seconds, is_lasting=is_lasting)
        if self.is_tried(address) and self.state(address) is BreakerState.OPEN:
            self._try_at = self._clock.seconds() + self._limits.pause_seconds(took_seconds)

    def succeed(self, address: Address) -> None:
        """Note that a destination took messages."""
        if address in self._breakers:
            self._breakers[address].succeed()

    @contextmanager
    def trying(self, address: Address) -> Iterator[None]:
        """In the block, one message may go to a destination that takes nothing."""
        self._tried = (address,)
        try:
            yield
        finally:
            self._tried = ()

    def due(self, waiting: Callable[[], Collection[Address]]) -> Iterator[Address]:
        """Those of the destinations `waiting` that can be used or tried now, one at a time. What
        became of one is to be noted before the next is asked for; `waiting` is called each time.
        """
        while addresses := waiting():
            address = min(addresses, key=self._seconds_to_try)
            if not self.is_due(address):
                return
            yield address

    def seconds_to_try(self, waiting: Collection[Address]) -> float | None:
        """After how many seconds one of the destinations `waiting` can be tried; None: none can."""
        seconds = min(map(self._seconds_to_try, waiting), default=_NEVER)
        return None if seconds == _NEVER else seconds

    def _seconds_to_try(self, address: Address) -> float:
        match self.state(address):
            case BreakerState.CLOSED:
                return 0.0
            case BreakerState.TRIGGERED:
                return _NEVER
        breaker = self._breakers[address]
        pause = max(0.0, self._try_at - self._clock.seconds())
        return min(max(pause, breaker.seconds_to_try), breaker.seconds_left)


_NEVER = float("inf")


def report_of(name: str, breaker: CircuitBreaker, left: int, now: datetime) -> BreakerReport:
    """The report of a breaker that opened. `now` is this machine's time."""
    opened = now - timedelta(seconds=breaker.opened_seconds_ago)
    return BreakerReport(
        name,
        breaker.state.value,
        opened.isoformat(timespec="seconds"),
        round(breaker.open_seconds, 1),
        left,
        breaker.reason,
    )


# A reservation that is used later than this would add to the next second's. What is reserved and
# what is so late add up to less than the limit.
_LONGEST_LATE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Reservation:
    """`messages` messages may go to `address` from `at` on, by the slice's clock."""

    address: Address
    messages: int
    at: float


class SliceLimits:
    """The limits as one slice keeps them: at most one reservation for each at any time."""

    def __init__(self, limits: RateLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._known: dict[Address, RateLimit | None] = {}
        self._reserved: dict[RateLimit, Reservation] = {}
        # The limits whose last reservation was used by nobody, because its time was over.
        self._dropped: set[RateLimit] = set()
        # The destination whose reserved messages are on their way; empty if there is none.
        self._passing: tuple[Address, ...] = ()

    def has(self, address: Address) -> bool:
        """Whether a destination has a limit."""
        return self._of(address) is not None

    def holds(self, address: Address) -> bool:
        """Whether messages for a destination have to wait for a reservation."""
        return bool(self._limits.limits) and self.has(address) and address not in self._passing

    def reserve(
        self, waiting: Mapping[Address, int], ask: Callable[[RateLimit, int], float]
    ) -> None:
        """Reserve for destinations with so many messages waiting. `ask` reserves that many at the
        store, and returns after how many seconds they may go.
        """
        for address, count in waiting.items():
            limit = self._of(address)
            if limit is not None and limit not in self._reserved:
                messages = min(count, limit.at_once)
                seconds = ask(limit, messages)
                # By the time after the answer, for which the slice may have waited.
                at = self._clock.seconds() + seconds
                self._reserved[limit] = Reservation(address, messages, at)

    def due(self, waiting: Collection[Address]) -> list[Reservation]:
        """The reservations whose time has come, which uses them up; without those for destinations
        that nothing waits for any more, and those whose time is over. No two of a limit that follow
        each other are dropped for that: where all comes late, messages go on nevertheless.
        """
        now = self._clock.seconds()
        due = {limit: each for limit, each in self._reserved.items() if each.at <= now}
        for limit in due:
            del self._reserved[limit]
        late = {limit for limit, each in due.items() if now - each.at > _LONGEST_LATE_SECONDS}
        dropped = late - self._dropped
        self._dropped = (self._dropped - due.keys()) | dropped
        return [
            each for limit, each in due.items() if each.address in waiting and limit not in dropped
        ]

    @property
    def seconds_to_next(self) -> float | None:
        """After how many seconds the next reservation may be used; None: there is none."""
        first = min((each.at for each in self._reserved.values()), default=None)
        return None if first is None else max(0.0, first - self._clock.seconds())

    @contextmanager
    def passing(self, address: Address) -> Iterator[None]:
        """In the block, messages for a destination go although it has a limit."""
        self._passing = (address,)
        try:
            yield
        finally:
            self._passing = ()

    def _of(self, address: Address) -> RateLimit | None:
        if address not in self._known:
            self._known[address] = self._limits.of(address)
        return self._known[address]


# To try a destination takes one message. More are claimed, because others may have taken the first.
_CLAIMED_TO_TRY = 100


class Waiting(NamedTuple):
    """A message that is left alone for now: its claim key, its key, and the size of its headers and
    body in bytes.
    """

    claim_key: str
    key: str
    size: int


class BlockedMessages:
    """Keeps what waits for each destination, and says what claims leave alone: `left_alone`, the
    keys of messages by their claim keys, where these are not keys.
    """

    def __init__(
        self, breakers: DestinationBreakers, rates: SliceLimits, limits: BatchLimits
    ) -> None:
        self._breakers = breakers
        self._rates = rates
        self._limits = limits
        self._waiting: dict[Address, list[Waiting]] = {}
        self.left_alone: dict[str, set[str]] = {}

    @property
    def left(self) -> int:
        """How many messages wait for their destination."""
        return sum(map(len, self._waiting.values()))

    def reports(
        self, own_queue: str, services: CircuitBreaker, now: datetime
    ) -> Iterator[BreakerReport]:
        """What is to be told of each destination that took nothing for some time, and of the
        services.
        """
        for address, breaker in self._breakers.opened().items():
            name = own_queue if address is None else address
            yield report_of(name, breaker, len(self._waiting.get(address, ())), now)
        if services.reason:
            yield report_of(SERVICES, services, 0, now)

    def failing(self) -> Collection[Address]:
        """The destinations that messages wait for because they took nothing."""
        return [address for address in self._waiting if not self._is_limited(address)]

    def limited(self) -> dict[Address, int]:
        """The destinations that messages wait for because of a limit, and how many wait."""
        return {
            address: len(waiting)
            for address, waiting in self._waiting.items()
            if self._is_limited(address)
        }

    def _is_limited(self, address: Address) -> bool:
        return self._rates.has(address) and self._breakers.takes(address)

    def add(self, blocked: Sequence[tuple[Address, Waiting]], others: Sequence[Waiting]) -> None:
        """Leave messages of a batch alone: `blocked` ones until their destination may get messages
        again, each with its destination; `others` for the whole slice.
        """
        for address, one in blocked:
            self._waiting.setdefault(address, []).append(one)
            self._leave(one)
        for one in others:
            self._leave(one)

    def _leave(self, one: Waiting) -> None:
        if one.claim_key != one.key:
            self.left_alone.setdefault(one.claim_key, set()).add(one.key)

    def take(self, address: Address, most: int | None = None) -> Sequence[str]:
        """The claim keys of messages that wait for a destination, for one batch of at most `most`
        messages.
        """
        limits = self._limits
        if most is not None:
            limits = replace(limits, rows=min(limits.rows, most))
        if not self._breakers.takes(address):
            limits = replace(limits, rows=min(limits.rows, _CLAIMED_TO_TRY))
        waiting = self._waiting[address]
        first = waiting[: limits.rows]
        batch = next(limits.batches(first, [one.size for one in first]))
        del waiting[: len(batch)]
        if not waiting:
            del self._waiting[address]
        for one in batch:
            self.left_alone.get(one.claim_key, set()).discard(one.key)
        return [one.claim_key for one in batch]


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
        job: Job,
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
        clock = self._job.context.world.clock
        end = clock.seconds() + max(seconds, _LEAST_WAIT_SECONDS)
        while end > clock.seconds():
            # Before the rest, not after it: what may go on at the end of it goes at once.
            with store.transaction():
                store.claim(self._job.run, ())
            self._job.progressed()
            if (left := end - clock.seconds()) > 0:
                clock.sleep(min(max(left, _LEAST_WAIT_SECONDS), _STOP_POLL_SECONDS))

    def try_destinations(self, run: Run) -> None:
        """Run what waits for destinations that can be tried, or used, again."""
        for address in self._breakers.due(self._blocked.failing):
            with self._breakers.trying(address):
                run(self._blocked.take(address))

    def go_on(self, store: TaskSession, run: Run) -> None:
        """Run all that may go on now, what waits for a limit too. Not between other batches: they
        take longer than a reservation may wait.
        """
        self.try_destinations(run)
        self._reserve(store)
        for reservation in self._limits.due(self._blocked.limited()):
            with self._limits.passing(reservation.address):
                self._use(reservation, run)
        self._reserve(store)

    def _use(self, reservation: Reservation, run: Run) -> None:
        """Claim as many messages as are reserved. If others have taken some: the next ones."""
        address, left = reservation.address, reservation.messages
        while left > 0 and address in self._blocked.limited():
            left -= run(self._blocked.take(address, left))

    def _reserve(self, store: TaskSession) -> None:
        waiting = self._blocked.limited()
        if waiting:
            self._limits.reserve(waiting, store.reserve)
