"""Pure rules: batches, back-off, giving up, slices, pauses, times of breakers, rates, how long
each session waits, when a watcher looks again, where the ledger can be cut.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import TypeVar

from duesweep.core.errors import MessageError
from duesweep.core.message import Address, Message
from duesweep.core.routing import EVERYTHING, fits_destination

# A key, its size and its place take some 200 bytes in a task, so this bounds a task's plan to about
# 50 MB. A sweep in process has two of them at once, and those whose messages wait for a limit.
MAX_SLICE_ROWS = 250_000
# Of a larger backlog, several sweeps are made. The journal holds about 500 MB of one.
MOST_IN_A_SWEEP = 2_000_000
# No batch holds its claim longer than about this.
CLAIM_SECONDS = 5.0
# How many rows one statement may look at: SQL Server locks a whole table when one statement has
# taken 5,000 locks on it. Locks on pages and index keys may count too.
SCANNED_ROWS = 1_600
MAX_BATCH_ROWS = 1_000
# On other servers: 1,000 cost a tenth more CPU a message, and 4,000 no less.
BATCH_ROWS = 2_000
_LEAST_MARGIN_SECONDS = 5.0

# A failed try may take its time, such as the wait for a lock. The pause after it is this many times
# as long: a slice spends at most a quarter of its time on dead services.
PAUSE_PER_TRY = 3.0
# Reserved messages reach the queue a little earlier or later than planned. So less than the limit
# is reserved, and no second has more.
_SHARE_RESERVED = 0.94
# How long the messages of one reservation take at the limit: short, so that slices take turns.
_RESERVED_SECONDS = 0.04

# A back-off is shortened by chance, to this part at most.
_SHORTENED = 0.75

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Retry:
    """How often, and after which time, a failed message is tried again; how many messages a sweep
    exhausts, at most; and the queue that also gets these (None: no error queue is set). The fields
    have the names of [retry], but for `non_retryable`: errors that exhaust a message at once.
    """

    max_attempts: int = 5
    initial_seconds: float = 30.0
    max_seconds: float = 3600.0
    error_queue: str | None = None
    max_exhausted_per_sweep: int = 1_000
    non_retryable: tuple[type[MessageError], ...] = ()

    def is_last(self, failures_before: int, error: MessageError) -> bool:
        """Whether `error` exhausts a message that has failed `failures_before` times already. It
        does at the last attempt, or if it is non-retryable.
        """
        return failures_before + 1 >= self.max_attempts or isinstance(error, self.non_retryable)

    @property
    def shortest_seconds(self) -> float:
        """The shortest time between two attempts."""
        return _SHORTENED * min(self.max_seconds, self.initial_seconds)

    def backoff_seconds(self, failures_before: int, rng: random.Random) -> float:
        """Seconds until the next attempt: doubled with each failure, up to `max_seconds`, and then
        shortened at random by up to a quarter, so that messages that failed together do not all
        come back at once.
        """
        # 2.0**64 exceeds any cap; a larger exponent would overflow for long-lived messages.
        full = min(self.max_seconds, self.initial_seconds * 2.0 ** min(failures_before, 64))
        return full * (1.0 - (1.0 - _SHORTENED) * rng.random())


@dataclass(frozen=True, slots=True)
class BatchSize:
    """The bounds of one batch, in rows and in bytes of headers and body."""

    rows: int = BATCH_ROWS
    bytes: int = 8_000_000

    def batches(
        self, keys: Sequence[_T], sizes: Sequence[int], together: Sequence[object] = ()
    ) -> Iterator[Sequence[_T]]:
        """Cut `keys` into batches of at most this size. A larger message gets its own. Keys
        with equal neighbours in `together` get into one batch, if they fit into one.
        """
        start, weight, turn = 0, 0, 0
        for index, size in enumerate(sizes):
            if index and (not together or together[index] != together[index - 1]):
                turn = index
            while index > start and (index - start >= self.rows or weight + size > self.bytes):
                end = turn if turn > start else index
                yield keys[start:end]
                start, weight = end, sum(sizes[end:index])
            weight += size
        if start < len(keys):
            yield keys[start:]

    def pack(self, items: Iterable[_T], size: Callable[[_T], int]) -> Iterator[list[_T]]:
        """Cut a stream into batches of at most this size."""
        batch: list[_T] = []
        weight = 0
        for one in items:
            if batch and (len(batch) >= self.rows or weight + size(one) > self.bytes):
                yield batch
                batch, weight = [], 0
            batch.append(one)
            weight += size(one)
        if batch:
            yield batch


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
        """The number of slices for `found` messages; 1 for no messages."""
        useful = -(-found // self.least_rows)
        return max(1, min(self.slices, useful), -(-found // self.most_rows))


def slicing(slices: int, batch_rows: int, most_rows: int = MAX_SLICE_ROWS) -> Slicing:
    """A slice has a batch at least, and each part of a large backlog has as many as are wanted."""
    size = max(batch_rows, min(most_rows, MOST_IN_A_SWEEP // slices))
    return Slicing(slices, least_rows=batch_rows, most_rows=min(MAX_SLICE_ROWS, size))


@dataclass(frozen=True, slots=True)
class BreakerTimes:
    """The section [breaker]. `trigger_seconds`: for how long a sweep repeats failed tries; 0: never
    again. `recovery_failures_per_second`: how often it tries in vain at the most.
    """

    trigger_seconds: float = 30.0
    recovery_failures_per_second: float = 1.0

    def pause_seconds(self, took_seconds: float) -> float:
        """How long to wait after a try that failed and took `took_seconds`."""
        return max(1 / self.recovery_failures_per_second, PAUSE_PER_TRY * took_seconds)


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
        return _limit_of(self.limits, self.own_name if address is None else address)


# Each batch asks for each of its destinations.
@lru_cache(maxsize=100_000)
def _limit_of(limits: tuple[RateLimit, ...], name: str) -> RateLimit | None:
    return next((each for each in limits if fits_destination(name, each.pattern)), None)


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing goes to the destinations that fit `pattern`, in which `*` stands for any text, from
    `paused_at` until `until`; None: until they are resumed. Times are aware datetimes.
    """

    pattern: str
    paused_at: datetime
    until: datetime | None
    given_by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Paused:
    """The patterns of the pauses in force. `own_name` is the endpoint's, for messages to its own
    queue.
    """

    patterns: Sequence[str] = ()
    own_name: str = ""

    def holds(self, address: Address) -> bool:
        """Whether nothing may go to a destination."""
        name = self.own_name if address is None else address
        return any(fits_destination(name, pattern) for pattern in self.patterns)

    def separate(self, messages: Sequence[Message]) -> tuple[list[Message], Sequence[Message]]:
        """The messages that may not go, and the others. One whose destination cannot be read waits
        only if everything does.
        """
        if not self.patterns:
            return [], messages
        held: list[Message] = []
        free: list[Message] = []
        for message in messages:
            is_unknown = isinstance(message.headers, MessageError) and message.destination is None
            waits = EVERYTHING in self.patterns if is_unknown else self.holds(message.destination)
            (held if waits else free).append(message)
        return held, free


# PostgreSQL's client library never waits less than 2 s.
_SHORTEST_CONNECT_SECONDS = 2.0
_LONGEST_CONNECT_SECONDS = 10.0
# 0.1 ms for each message: the time to find one on a cold disk.
_SECONDS_PER_MILLION = 100.0
# The server's limit for a statement, as a part of its client's. So a slow server reports its own
# time-out before the client gives up, and a server that reports nothing is silent.
_SERVERS_PART = Fraction(3, 4)
_LONGEST_TASK_LOCK_SECONDS = 2.0
_LONGEST_DRIVER_LOCK_SECONDS = 30.0
# A client that sends nothing for this time within a batch is frozen, and the messages that it has
# locked are due.
_BATCH_IDLE_SECONDS = 2.0
# A driver that is frozen within a transaction holds rows that the next sweep needs. As long as a
# lease lasts.
_DRIVER_IDLE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class SessionWaits:
    """How many seconds one session waits: for its opening (login included), for one answer, and
    on the server for a lock. `idle_seconds`: if a client sends nothing for this time within a
    transaction, the server takes it for dead; 0: no limit.
    """

    connect_seconds: float
    answer_seconds: float
    lock_seconds: float
    idle_seconds: float = 0.0

    @property
    def statement_seconds(self) -> float:
        """The server's limit for one statement, shorter than its client's wait."""
        return float(self.answer_seconds * _SERVERS_PART)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """`silence_seconds`: if a service falls silent, the sweep ends within this time. That covers
    one wait of a task, its attempt to open a new session, and one wait of the driver. A batch
    `is_alone` if it waits for no other service.
    """

    silence_seconds: float = 60.0
    is_alone: bool = False

    @property
    def connect_seconds(self) -> float:
        """The limit for opening a session, login included."""
        seconds = max(_SHORTEST_CONNECT_SECONDS, self.silence_seconds / 6)
        return min(_LONGEST_CONNECT_SECONDS, seconds)

    @property
    def batch_seconds(self) -> float:
        """The limit for one answer to a task: a statement, a COPY, a COMMIT, a confirm."""
        return self.silence_seconds / 3

    @property
    def driver_seconds(self) -> float:
        """The limit for one answer to the driver."""
        return self.silence_seconds * 2 / 3

    def plan_seconds(self, messages: int) -> float:
        """The limit for one answer about all due messages, if about `messages` are due."""
        return self.driver_seconds + _SECONDS_PER_MILLION * messages / 1_000_000

    def read_seconds(self, messages: int) -> float:
        """The limit for one answer to Spark about `messages` messages. Spark tries four times.
        Then the driver asks on its own session whether the server still answers.
        """
        return self.silence_seconds / 5 + _SECONDS_PER_MILLION * messages / 1_000_000

    @property
    def task(self) -> SessionWaits:
        """The waits of a task's session: briefly for rows and for tables."""
        lock_seconds = min(_LONGEST_TASK_LOCK_SECONDS, self.batch_seconds / 4)
        idle_seconds = _BATCH_IDLE_SECONDS if self.is_alone else 2 * self.silence_seconds
        return SessionWaits(self.connect_seconds, self.batch_seconds, lock_seconds, idle_seconds)

    @property
    def driver(self) -> SessionWaits:
        """The waits of the driver's session, which awaits batches in flight."""
        lock_seconds = min(_LONGEST_DRIVER_LOCK_SECONDS, self.driver_seconds / 2)
        return SessionWaits(
            self.connect_seconds, self.driver_seconds, lock_seconds, _DRIVER_IDLE_SECONDS
        )

    @property
    def handler(self) -> SessionWaits:
        """The waits of a session in whose transaction a user's handler runs, without a limit."""
        return replace(self.driver, idle_seconds=0.0)


DEFAULT_TIMEOUTS = Timeouts()


# After a sweep that left nothing.
LEAST_WAIT_SECONDS = 0.02
# After a sweep that left messages: each is a row of the ledger and a third of a second of work, and
# without a rest there would be 250,000 a day.
REST_SECONDS = 0.3
# After errors: a service that is back gets its messages within five seconds.
MOST_WAIT_AFTER_ERRORS_SECONDS = 4.0
# After errors of the ledger, which dispatch does not need.
MOST_WAIT_FOR_LEDGER_SECONDS = 1.0
# While others hold messages that are due: the server takes most from a frozen process after 2 s.
MOST_WAIT_FOR_LOCKED_SECONDS = 1.0


def wait_for_next(next_due: datetime | None, now: datetime | None, most_seconds: float) -> float:
    """How many seconds to wait for the message that is due next; both times are the server's.

    Never more than `most_seconds`: an endpoint may store a message that is due earlier.
    """
    if next_due is None or now is None:
        return most_seconds
    return _within((next_due - now).total_seconds(), most_seconds)


def wait_after(times: int, most_seconds: float = MOST_WAIT_AFTER_ERRORS_SECONDS) -> float:
    """How many seconds to wait after a tick that left messages, and this many ticks in a row that
    failed, or moved nothing although something was due: a rest for 0, and twice as long each time,
    up to `most_seconds`.
    """
    doublings = min(max(times, 0), 20)
    return _within(REST_SECONDS * 2**doublings, most_seconds)


def _within(seconds: float, most_seconds: float) -> float:
    return max(LEAST_WAIT_SECONDS, min(seconds, most_seconds))


class SweepEngine(StrEnum):
    """What dispatches. `AUTO`: Spark for many messages; without Spark, this process."""

    AUTO = "auto"
    PROCESS = "process"
    SPARK = "spark"


class LedgerWriter(StrEnum):
    """Who writes the ledger's tables. `AUTO`: delta-rs if it can, but on a cluster Spark."""

    AUTO = "auto"
    SPARK = "spark"
    DELTA_RS = "delta-rs"
