"""Pure rules: batches, back-off, giving up, slices, limits of breakers and of rates."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from duesweep.core.errors import MessageError
from duesweep.core.message import Address
from duesweep.core.patterns import fits_destination

# A key and its size take some 100 bytes in a task, so this bounds a task's plan to about 50 MB.
MAX_SLICE_ROWS = 500_000
# No batch holds its claim longer than about this.
CLAIM_SECONDS = 5.0
# How many rows one statement may look at: SQL Server locks a whole table when one statement has
# taken 5,000 locks on it. Locks on pages count too.
SCANNED_ROWS = 2_000
MAX_BATCH_ROWS = 1_000
# Where that does not matter: 1,000 cost a tenth more CPU a message, and 4,000 no less.
BATCH_ROWS = 2_000
_LEAST_MARGIN_SECONDS = 5.0

# What is tried in vain may take its time, such as the wait for a lock. So much longer is the pause
# after it: a slice spends at most a quarter of its time on what is dead.
PAUSE_PER_TRY = 3.0
# What is reserved reaches the queue a little earlier or later than planned. So less than the limit
# is reserved, and no second has more.
_SHARE_RESERVED = 0.94
# How long the messages of one reservation take at the limit: short, so that slices take turns.
_RESERVED_SECONDS = 0.04

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Retry:
    """How often, and after which time, a failed message is tried again."""

    max_attempts: int = 5
    initial_seconds: float = 30.0
    max_seconds: float = 3600.0
    non_retryable: tuple[type[MessageError], ...] = ()

    def is_last(self, failures_before: int, error: MessageError) -> bool:
        """Whether `error` exhausts a message that has failed `failures_before` times already. It
        does at the last attempt, or if it is non-retryable.
        """
        return failures_before + 1 >= self.max_attempts or isinstance(error, self.non_retryable)

    def backoff_seconds(self, failures_before: int, rng: random.Random) -> float:
        """Seconds until the next attempt: doubled with each failure, up to `max_seconds`, and then
        shortened at random by up to a quarter, so that messages that failed together do not all
        come back at once.
        """
        # 2.0**64 exceeds any cap; a larger exponent would overflow for long-lived messages.
        full = min(self.max_seconds, self.initial_seconds * 2.0 ** min(failures_before, 64))
        return full * (1.0 - 0.25 * rng.random())


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The bounds of one batch, in rows and in bytes of headers and body."""

    rows: int = BATCH_ROWS
    bytes: int = 8_000_000

    def batches(self, keys: Sequence[_T], sizes: Sequence[int]) -> Iterator[Sequence[_T]]:
        """Cut `keys` into batches within the limits. A message over the limit gets its own."""
        start, weight = 0, 0
        for index, size in enumerate(sizes):
            full = index - start >= self.rows or weight + size > self.bytes
            if full and index > start:
                yield keys[start:index]
                start, weight = index, 0
            weight += size
        if start < len(keys):
            yield keys[start:]


@dataclass(frozen=True, slots=True)
class LookAhead:
    """How far a sweep looks ahead. A sweep starts every `period_seconds`; 0: no looking ahead.
    `started` is when this sweep began to start, from `time.time()`.

    This sweep has to defer all messages that become due before the next sweep can deliver them.
    The next sweep needs time to start and time to deliver. The start of this sweep is measured, and
    the delivery is assumed to take as long as the start.
    """

    period_seconds: float = 0
    started: float = 0

    def seconds(self, now: float) -> float:
        """How many seconds to look ahead. `now` is when the sweep first asks its store."""
        if not self.period_seconds:
            return 0
        # At most half of the period counts as the start: a process that runs many sweeps in one
        # session started long ago.
        starting = min(max(0.0, now - self.started), self.period_seconds / 2)
        return self.period_seconds + max(_LEAST_MARGIN_SECONDS, 2 * starting)

    @property
    def longest_seconds(self) -> float:
        """The largest value of `seconds`, for use before the start can be measured."""
        return self.seconds(self.started + self.period_seconds)


def delay_level(seconds: int) -> int:
    """The level at which a message enters the delay ladder: the highest bit of its delay."""
    return max(seconds.bit_length() - 1, 0)


@dataclass(frozen=True, slots=True)
class Slicing:
    """How many slices a plan gets: at most `slices`, and fewer if they would have less than
    `least_rows`; but more if one had more than `most_rows`, which would not fit into a task's
    memory. The stores count so in SQL, in the same statement that finds the slices.
    """

    slices: int
    least_rows: int = 1
    most_rows: int = MAX_SLICE_ROWS

    def count(self, found: int) -> int:
        """The number of slices for `found` messages; 1 if there are none."""
        useful = -(-found // self.least_rows)
        return max(1, min(self.slices, useful), -(-found // self.most_rows))


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """`trigger_seconds`: for how long a slice tries again what fails; 0: never again.
    `failures_per_second`: how often it tries in vain at the most.
    """

    trigger_seconds: float = 30.0
    failures_per_second: float = 1.0

    def pause_seconds(self, took_seconds: float) -> float:
        """How long to leave alone what has just failed, after so many seconds."""
        return max(1 / self.failures_per_second, PAUSE_PER_TRY * took_seconds)


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most `per_second` messages a second, for all destinations that fit `pattern` together."""

    pattern: str
    per_second: float

    @property
    def seconds_each(self) -> float:
        """Seconds of the limit that one message takes up."""
        return 1 / (self.per_second * _SHARE_RESERVED)

    @property
    def at_once(self) -> int:
        """How many messages are reserved at once."""
        return max(1, int(self.per_second * _RESERVED_SECONDS))


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The limits of a configuration; the first that fits a destination counts. `own_name` is the
    endpoint's, for messages to its own queue.
    """

    limits: tuple[RateLimit, ...] = ()
    own_name: str = ""

    def of(self, address: Address) -> RateLimit | None:
        """The limit of a destination; None: it has none."""
        name = self.own_name if address is None else address
        return next((each for each in self.limits if fits_destination(name, each.pattern)), None)
