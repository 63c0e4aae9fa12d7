"""When messages may go that may not go yet: circuit breakers, and the destinations of a slice.

A breaker says when to avoid a failed service, and when to try it again: closed → open at a
failure → tried again after a pause → closed at a success. A breaker that has been open for the time
to trigger, or whose fault does not pass by itself, is not tried again.

Without I/O. limits.py says when messages may go that wait for a limit.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import NamedTuple

from duesweep.core.account import BreakerReport, BreakerState
from duesweep.core.message import Address
from duesweep.core.policy import BatchSize, BreakerTimes, RateLimits
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

    def continue_from(self, outage: BreakerReport) -> None:
        """Be open since an outage of an earlier round began, and ready to be tried."""
        self._opened_at = self._clock.seconds() - outage.seconds
        self.reason = outage.reason
        self._is_lasting = outage.state == BreakerState.TRIGGERED

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
        """How long not to try it, if it is open."""
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


# A reason names its destination, and there may be thousands.
_SHOWN_REASONS = 20


class LeftMessage(NamedTuple):
    """A message that stays for this batch: its claim key, its key, and the size of its headers and
    body in bytes.
    """

    claim_key: str
    key: str
    size: int


class Destinations:
    """The destinations of one slice: which of them are unavailable, and which have a limit.

    The messages of one that is unavailable are left; later batches try it with one message. All
    destinations together are tried in vain as often as one may be. Messages for one with a limit
    wait until it `has_turn`. `outages` are the breakers that the round before left open, to be
    tried in `tries_in` seconds; `own_queue` is the endpoint's.
    """

    def __init__(
        self,
        times: BreakerTimes,
        rate_limits: RateLimits,
        batch_size: BatchSize,
        clock: Clock,
        *,
        rng: Random,
        outages: Iterable[BreakerReport] = (),
        tries_in: float = 0.0,
        own_queue: str = "",
    ) -> None:
        self._times, self._batch_size, self._clock = times, batch_size, clock
        self._rng = rng
        self._own_queue = own_queue
        # Of earlier rounds, until this slice has a message for the destination.
        self._outages = {one.name: one for one in outages}
        # Of the destinations that were unavailable in this slice.
        self._breakers: dict[Address, CircuitBreaker] = {}
        self._try_at = clock.seconds() + tries_in
        self._rate_limits = rate_limits
        # A destination that gets messages now although it has a limit.
        self.has_turn: Collection[Address] = ()
        self._waiting: dict[Address, list[LeftMessage]] = {}
        self._left: Counter[Address] = Counter()
        # What claims leave alone: keys of messages by their claim keys, where these are not keys.
        self.left_alone: dict[str, set[str]] = {}
        # Why a destination cannot defer messages. It still takes due messages.
        self.cannot_defer: dict[Address, str] = {}

    @property
    def all_closed(self) -> bool:
        """Whether all destinations take messages, as far as is known."""
        return not self._outages and all(one.is_closed for one in self._breakers.values())

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
        """How many messages stay because of their destination."""
        return self._left.total() + sum(map(len, self._waiting.values()))

    def reports(self, now: datetime) -> Iterator[BreakerReport]:
        """The report of each destination that was unavailable for some time."""
        for address, breaker in self._breakers.items():
            left = self._left[address] + len(self._waiting.get(address, ()))
            yield breaker.report(self._name(address), left, now)

    def in_turn(self, addresses: Collection[Address]) -> Sequence[Address]:
        """The destinations in the order in which a batch uses them. Unavailable ones come last, in
        an order by chance: one that fails again and again must not keep the others waiting.
        """
        tried = [address for address in addresses if not self.takes(address)]
        self._rng.shuffle(tried)
        return [*(address for address in addresses if self.takes(address)), *tried]

    def has_limit(self, address: Address) -> bool:
        """Whether its messages may only go when their turn comes."""
        return bool(self._rate_limits.limits) and self._rate_limits.of(address) is not None

    def room(self, address: Address) -> int | None:
        """How many messages of a batch a destination may get: none, one to try it; None: all."""
        if not self.takes(address):
            return int(self.is_due(address))
        is_held = self.has_limit(address) and address not in self.has_turn
        return 0 if is_held else None

    def takes(self, address: Address) -> bool:
        """Whether it is available, as far as is known."""
        breaker = self.breaker(address)
        return breaker is None or breaker.is_closed

    def is_due(self, address: Address) -> bool:
        """Whether a destination can be used, or tried, now."""
        breaker = self.breaker(address)
        if breaker is None or breaker.is_closed:
            return True
        is_resting = breaker.seconds_to_try or self._try_at > self._clock.seconds()
        return breaker.state is BreakerState.OPEN and not is_resting

    def fail(
        self, address: Address, reason: str, *, took_seconds: float, is_lasting: bool = False
    ) -> None:
        """Note that a destination is unavailable, which was found out within `took_seconds`.
        `is_lasting`: the fault does not pass by itself.
        """
        was_tried = not self.takes(address)
        if address not in self._breakers:
            # A destination that takes one message and refuses the next ones has not recovered.
            breaker = CircuitBreaker(self._times, self._clock, forgives_at_once=False)
            self._breakers[address] = breaker
        self._breakers[address].fail(reason, took_seconds=took_seconds, is_lasting=is_lasting)
        if was_tried:
            self._try_at = self._clock.seconds() + self._times.pause_seconds(took_seconds)

    def follow(self, other: "Destinations", address: Address) -> None:
        """Share the other's breaker of a destination that was unavailable to it."""
        if (breaker := other.breaker(address)) is not None:
            self._outages.pop(self._name(address), None)
            self._breakers[address] = breaker

    def succeed(self, address: Address) -> None:
        if (breaker := self.breaker(address)) is not None:
            breaker.succeed()

    def add(
        self,
        blocked: Iterable[tuple[Address, LeftMessage]] = (),
        others: Iterable[LeftMessage] = (),
    ) -> None:
        """Note messages that a batch left in the store. The `blocked` ones, each with its
        destination, wait for its limit, or are left; `others` are not tried again in this slice.
        """
        for address, one in blocked:
            if self.takes(address):
                self._waiting.setdefault(address, []).append(one)
            else:
                self._left[address] += 1
            self._leave(one)
        for one in others:
            self._leave(one)

    def leave(self, address: Address) -> bool:
        """Leave a message for this destination if it can be neither used nor tried now. Returns
        whether it was left.
        """
        is_left = not self.is_due(address)
        self._left[address] += is_left
        return is_left

    @property
    def waiting(self) -> dict[Address, int]:
        """How many messages wait for a limit, by their destination."""
        return {
            address: len(waiting)
            for address, waiting in self._waiting.items()
            if self.takes(address)
        }

    def take(self, address: Address, most: int) -> Sequence[str]:
        """The claim keys of messages that wait for a limit, for one batch of at most `most`
        messages.
        """
        size = replace(self._batch_size, rows=min(self._batch_size.rows, most))
        waiting = self._waiting[address]
        first = waiting[: size.rows]
        batch = next(size.batches(first, [one.size for one in first]))
        del waiting[: len(batch)]
        if not waiting:
            del self._waiting[address]
        for one in batch:
            self.left_alone.get(one.claim_key, set()).discard(one.key)
        return [one.claim_key for one in batch]

    def _name(self, address: Address) -> str:
        return self._own_queue if address is None else address

    def breaker(self, address: Address) -> CircuitBreaker | None:
        """The destination's breaker, if it was unavailable in this round or the one before."""
        if self._outages and (outage := self._outages.pop(self._name(address), None)):
            breaker = CircuitBreaker(self._times, self._clock, forgives_at_once=False)
            breaker.continue_from(outage)
            self._breakers[address] = breaker
        return self._breakers.get(address)

    def _leave(self, one: LeftMessage) -> None:
        if one.claim_key != one.key:
            self.left_alone.setdefault(one.claim_key, set()).add(one.key)
