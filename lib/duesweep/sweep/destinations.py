"""When messages may go that may not go yet: circuit breakers, limits, and the destinations of a
slice.

A breaker says when to avoid a failed service, and when to try it again: closed → open at a
failure → tried again after a pause → closed at a success. A breaker that has been open for the time
to trigger, or whose fault does not pass by itself, is not tried again.

Without I/O: the store counts the reservations of all slices and sweeps (`TaskSession.reserve`).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from duesweep.core.account import SERVICES, BreakerReport, BreakerState
from duesweep.core.message import Address
from duesweep.core.policy import BatchSize, BreakerTimes, RateLimit, RateLimits
from duesweep.core.world import Clock


class CircuitBreaker:
    """The breaker of one service or one destination, within one slice.

    A failure after a success begins a new time to trigger. Unless `forgives_at_once`, it continues
    the time before if it worked for a shorter time than it had failed.
    """

    def __init__(self, times: BreakerTimes, clock: Clock, *, forgives_at_once: bool = True) -> None:
        self._times = times
        self._clock = clock
        self._forgives_at_once = forgives_at_once
        self._opened_at: float | None = None
        self._closed_at: float | None = None
        self._try_at = 0.0
        self._is_lasting = False
        # Why it opened, or could not be closed, last; empty if it never opened.
        self.reason = ""

    @property
    def state(self) -> BreakerState:
        if self._opened_at is None or self._closed_at is not None:
            return BreakerState.CLOSED
        is_over = self._clock.seconds() >= self._triggers_at
        return BreakerState.TRIGGERED if is_over or self._is_lasting else BreakerState.OPEN

    @property
    def is_closed(self) -> bool:
        return self.state is BreakerState.CLOSED

    @property
    def open_seconds(self) -> float:
        """For how long it has been open, or was open the last time; 0 if it never was."""
        if self._opened_at is None:
            return 0.0
        until = self._clock.seconds() if self._closed_at is None else self._closed_at
        return until - self._opened_at

    @property
    def seconds_to_try(self) -> float:
        """How long not to use it, if it is open."""
        return max(0.0, self._try_at - self._clock.seconds())

    def fail(self, reason: str, *, took_seconds: float = 0.0, is_lasting: bool = False) -> None:
        """Note a failure that took `took_seconds`. `is_lasting`: it does not pass by itself."""
        now = self._clock.seconds()
        if self.is_closed:
            # The time in which it worked does not count.
            failed_before = self.open_seconds if self._counts_on else 0.0
            self._opened_at = now - failed_before
        self._closed_at = None
        self.reason = reason
        self._is_lasting = is_lasting
        # No wait is longer than until it is triggered.
        pause_seconds = self._times.pause_seconds(took_seconds)
        self._try_at = min(now + pause_seconds, self._triggers_at)

    @property
    def _counts_on(self) -> bool:
        """Whether a failure continues the time before: it worked for a shorter time than it had
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
        """When it is triggered. An instant, because differences are rounded: an open breaker has to
        be tried later than now.
        """
        opened_at = self._clock.seconds() if self._opened_at is None else self._opened_at
        return opened_at + self._times.trigger_seconds

    def succeed(self) -> None:
        if not self.is_closed:
            self._closed_at = self._clock.seconds()
            self._is_lasting = False

    def report(self, name: str, left: int, now: datetime) -> BreakerReport:
        """The report of a breaker that opened. `now` is this machine's time."""
        opened_at = self._clock.seconds() if self._opened_at is None else self._opened_at
        opened = now - timedelta(seconds=self._clock.seconds() - opened_at)
        return BreakerReport(
            name,
            self.state.value,
            opened.isoformat(timespec="seconds"),
            round(self.open_seconds, 1),
            left,
            self.reason,
        )


_NEVER = float("inf")

# A reservation that is used later than this would add to the next second's. Reserved
# and late messages add up to less than the limit.
_LONGEST_LATE_SECONDS = 0.05


class Reservation(NamedTuple):
    """`messages` messages may go to `address` from `at` on, by the slice's clock."""

    address: Address
    messages: int
    at: float


class Reservations:
    """The reservations of one slice: for each, one reservation at most at any time."""

    def __init__(self, limits: RateLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._known: dict[Address, RateLimit | None] = {}
        self._reserved: dict[RateLimit, Reservation] = {}
        # The limits whose last reservation was not used, because its time was over.
        self._dropped: set[RateLimit] = set()

    def has(self, address: Address) -> bool:
        return bool(self._limits.limits) and self._of(address) is not None

    def reserve(
        self, waiting: Mapping[Address, int], ask: Callable[[RateLimit, int], float]
    ) -> None:
        """Reserve for destinations with these numbers of waiting messages. `ask` reserves that many
        at the store, and returns after how many seconds they may go.
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
        """The reservations whose time has come, which uses them up; without ones for destinations
        without waiting messages, and late ones. No two in a row of a limit are dropped for
        lateness: if all of them are late, messages still go.
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
    def seconds_to_next(self) -> float:
        """After how many seconds the next reservation may be used."""
        first = min((each.at for each in self._reserved.values()), default=_NEVER)
        return max(0.0, first - self._clock.seconds())

    def _of(self, address: Address) -> RateLimit | None:
        if address not in self._known:
            self._known[address] = self._limits.of(address)
        return self._known[address]


# To try a destination takes one message. More are claimed, because others may have taken the first.
_CLAIMED_TO_TRY = 100
# A reason names its destination, and there may be thousands.
_SHOWN_REASONS = 20


class KeptMessage(NamedTuple):
    """A message that stays for this batch: its claim key, its key, and the size of its headers and
    body in bytes.
    """

    claim_key: str
    key: str
    size: int


class Turn(NamedTuple):
    """A batch for one destination: of as many messages as its limit has reserved, or else of one
    that tries the destination, and others in case it is gone.
    """

    address: Address
    claim_keys: Sequence[str]
    is_reserved: bool = False


class Destinations:
    """The destinations of one slice: which of them are unavailable, which have a limit, the
    messages that wait for each, and when it is whose turn.

    A destination that failed is tried again with one message. All destinations together are tried
    in vain as often as one may be.
    """

    def __init__(
        self, breaker: BreakerTimes, rates: RateLimits, batch_size: BatchSize, clock: Clock
    ) -> None:
        self._times, self._batch_size, self._clock = breaker, batch_size, clock
        # Of the destinations that have failed in this slice.
        self._breakers: dict[Address, CircuitBreaker] = {}
        self._try_at = 0.0
        self._reservations = Reservations(rates, clock)
        self._turn: Turn | None = None
        self._waiting: dict[Address, list[KeptMessage]] = {}
        self._claimed = 0
        # What claims leave alone: keys of messages by their claim keys, where these are not keys.
        self.left_alone: dict[str, set[str]] = {}
        # Why a destination cannot defer messages. It still takes due messages.
        self.cannot_defer: dict[Address, str] = {}

    @property
    def all_closed(self) -> bool:
        """Whether all destinations take messages, as far as is known."""
        return all(breaker.is_closed for breaker in self._breakers.values())

    @property
    def blocked_reason(self) -> str | None:
        """Why destinations are unavailable now, or cannot defer messages; None: all can."""
        closed = {one.reason for one in self._breakers.values() if not one.is_closed}
        reasons = sorted(closed | set(self.cannot_defer.values()))
        more = len(reasons) - _SHOWN_REASONS
        shown = "; ".join(reasons[:_SHOWN_REASONS])
        return f"{shown}; and {more:,} more" if more > 0 else shown or None

    @property
    def left(self) -> int:
        """How many messages wait for their destination."""
        return sum(map(len, self._waiting.values()))

    def reports(
        self, own_queue: str, services: CircuitBreaker, now: datetime
    ) -> Iterator[BreakerReport]:
        """The report of each destination that was unavailable for some time, and of the
        services.
        """
        for address, breaker in self._breakers.items():
            name = own_queue if address is None else address
            yield breaker.report(name, len(self._waiting.get(address, ())), now)
        if services.reason:
            yield services.report(SERVICES, 0, now)

    def room(self, address: Address) -> int | None:
        """How many messages of a batch a destination may get: none, one to try it; None: all."""
        if not self._takes(address):
            return int(self.is_tried(address))
        is_held = self._reservations.has(address) and not self._has_turn(address, is_reserved=True)
        return 0 if is_held else None

    def is_tried(self, address: Address) -> bool:
        """Whether a destination that failed is being tried, with one message."""
        return self._has_turn(address, is_reserved=False) and not self._takes(address)

    def is_due(self, address: Address) -> bool:
        """Whether a destination can be used, or tried, now."""
        return not self._seconds_to_try(address)

    def fail(
        self, address: Address, reason: str, *, took_seconds: float, is_lasting: bool = False
    ) -> None:
        """Note that a destination is unavailable, which was found out within `took_seconds`.
        `is_lasting`: the fault does not pass by itself.
        """
        if address not in self._breakers:
            # A destination that takes one message and refuses the next ones has not recovered.
            breaker = CircuitBreaker(self._times, self._clock, forgives_at_once=False)
            self._breakers[address] = breaker
        breaker = self._breakers[address]
        breaker.fail(reason, took_seconds=took_seconds, is_lasting=is_lasting)
        if self.is_tried(address) and breaker.state is BreakerState.OPEN:
            self._try_at = self._clock.seconds() + self._times.pause_seconds(took_seconds)

    def succeed(self, address: Address) -> None:
        if address in self._breakers:
            self._breakers[address].succeed()

    def add(
        self,
        claimed: int,
        blocked: Sequence[tuple[Address, KeptMessage]] = (),
        others: Sequence[KeptMessage] = (),
    ) -> None:
        """Note a batch that claimed this many messages. Its others have to wait: `blocked` ones
        until their destination may get messages again, each with its destination; `others` for the
        whole slice.
        """
        self._claimed += claimed
        for address, one in blocked:
            self._waiting.setdefault(address, []).append(one)
            self._leave(one)
        for one in others:
            self._leave(one)

    @property
    def seconds_to_next(self) -> float | None:
        """After how many seconds the next messages may go; None: none ever may."""
        tries = map(self._seconds_to_try, self._failing())
        seconds = min(self._reservations.seconds_to_next, *tries, _NEVER)
        return None if seconds == _NEVER else seconds

    def tries(self, room: Callable[[int], int]) -> Iterator[Turn]:
        """The turns of destinations that can be tried, or used, again. The outcome of one is to be
        noted before the next is asked for. `room`: how many of a number of messages may be claimed.
        """
        while room(1) and (addresses := self._failing()):
            address = min(addresses, key=self._seconds_to_try)
            if not self.is_due(address):
                return
            yield Turn(address, self._take(address, room(self._batch_size.rows)))

    def turns(
        self, ask: Callable[[RateLimit, int], float], room: Callable[[int], int]
    ) -> Iterator[Turn]:
        """The turns of all that may go now, also of messages that wait for a limit. Not between
        other batches: they take longer than a reservation may wait. `ask`: see
        `Reservations.reserve`; `room`: see `tries`.
        """
        yield from self.tries(room)
        self._reservations.reserve(self._limited(), ask)
        for address, left, _ in self._reservations.due(self._limited()):
            end = self._claimed + left
            # If others have taken some of these messages: the next ones.
            while (most := room(max(0, end - self._claimed))) and address in self._limited():
                claim_keys = self._take(address, most)
                yield Turn(address, claim_keys, is_reserved=True)
        self._reservations.reserve(self._limited(), ask)

    @contextmanager
    def giving(self, turn: Turn) -> Iterator[None]:
        """In the block, the destination may get its turn's messages."""
        self._turn = turn
        try:
            yield
        finally:
            self._turn = None

    def _takes(self, address: Address) -> bool:
        return self._state(address) is BreakerState.CLOSED

    def _state(self, address: Address) -> BreakerState:
        breaker = self._breakers.get(address)
        return BreakerState.CLOSED if breaker is None else breaker.state

    def _has_turn(self, address: Address, *, is_reserved: bool) -> bool:
        turn = self._turn
        return turn is not None and (turn.address, turn.is_reserved) == (address, is_reserved)

    def _seconds_to_try(self, address: Address) -> float:
        match self._state(address):
            case BreakerState.CLOSED:
                return 0.0
            case BreakerState.TRIGGERED:
                return _NEVER
        breaker = self._breakers[address]
        pause = max(0.0, self._try_at - self._clock.seconds())
        return min(max(pause, breaker.seconds_to_try), breaker.seconds_left)

    def _failing(self) -> Collection[Address]:
        """The destinations that messages wait for because they are unavailable."""
        limited = self._limited()
        return [address for address in self._waiting if address not in limited]

    def _limited(self) -> dict[Address, int]:
        """The destinations that messages wait for because of a limit, and how many wait."""
        return {
            address: len(waiting)
            for address, waiting in self._waiting.items()
            if self._reservations.has(address) and self._takes(address)
        }

    def _leave(self, one: KeptMessage) -> None:
        if one.claim_key != one.key:
            self.left_alone.setdefault(one.claim_key, set()).add(one.key)

    def _take(self, address: Address, most: int) -> Sequence[str]:
        """The claim keys of messages that wait for a destination, for one batch of at most `most`
        messages.
        """
        size = replace(self._batch_size, rows=min(self._batch_size.rows, most))
        if not self._takes(address):
            size = replace(size, rows=min(size.rows, _CLAIMED_TO_TRY))
        waiting = self._waiting[address]
        first = waiting[: size.rows]
        batch = next(size.batches(first, [one.size for one in first]))
        del waiting[: len(batch)]
        if not waiting:
            del self._waiting[address]
        for one in batch:
            self.left_alone.get(one.claim_key, set()).discard(one.key)
        return [one.claim_key for one in batch]
