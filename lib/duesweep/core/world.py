"""Time, chance and ids: all that is not a function of its input; how long to wait for a lock that
another process holds, and the current waits of a source.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID, uuid4

from duesweep.core.message import Message

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


class Clock:
    """This machine's clock. It limits how long something may take, and dates reports. It never
    decides whether a message is due: the store's server decides that. Any two are equal.
    """

    def __eq__(self, other: object) -> bool:
        return self is other or type(self) is type(other) is Clock

    def __hash__(self) -> int:
        return hash(type(self))

    def seconds(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def now(self) -> datetime:
        """The time of day, in UTC. It may be wrong, and go back."""
        return datetime.now(UTC)


class SettableClock(Clock):
    """A clock that stands still until it is moved. It began at 1970-01-01 UTC."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    def seconds(self) -> float:
        return self._seconds

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def now(self) -> datetime:
        return _EPOCH + timedelta(seconds=self._seconds)

    def advance(self, seconds: float) -> None:
        self._seconds += seconds


@dataclass(frozen=True, slots=True)
class World:
    """The origin of time, random numbers and ids for a sweep, its store, queues and ledger. It
    travels to tasks.
    """

    clock: Clock = field(default_factory=Clock)

    def chance(self) -> Random:
        """A source of random numbers, which is not shipped: all tasks would draw the same ones."""
        return Random()

    def new_id(self) -> UUID:
        """An id that nothing else has."""
        return uuid4()


# Instants cross contracts as microseconds, so that no time zone changes them.


def micros(instant: datetime) -> int:
    """Microseconds since 1970-01-01 UTC of an aware datetime, exactly."""
    return (instant - _EPOCH) // timedelta(microseconds=1)


def instant_of(microseconds: int) -> datetime:
    """The instant, in UTC, of microseconds since 1970-01-01 UTC. One outside of Python's years, 1
    to 9999, is the first or the last of them: servers and the ledger know more years.
    """
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return _FIRST if microseconds < 0 else _LAST


def exact_instant(microseconds: int) -> datetime | None:
    """The same; None outside of Python's years."""
    instant = instant_of(microseconds)
    return instant if micros(instant) == microseconds else None


class StoreClock:
    """The server's time at a claim, plus the time that has passed on `clock` since.

    `server_us` is the server's time in microseconds since 1970-01-01 UTC. Without a `clock` the
    time stands still.
    """

    def __init__(self, server_us: int, clock: Clock | None = None) -> None:
        self._server_us = server_us
        self._clock = clock or SettableClock()
        self._read_at = self._clock.seconds()

    def now_us(self) -> int:
        """The server's time now, in microseconds since 1970-01-01 UTC."""
        return self._server_us + int((self._clock.seconds() - self._read_at) * 1_000_000)

    def seconds_until(self, message: Message) -> int:
        """Whole seconds, rounded up, until a claimed message is due; 0 where it is due."""
        return -(-self.microseconds_until(message) // 1_000_000)

    def microseconds_until(self, message: Message) -> int:
        """Microseconds until a claimed message is due; 0 where it is due."""
        if message.instant_us is None:
            return 0
        return max(0, message.instant_us - self.now_us())

    def waits(self, messages: Iterable[Message]) -> dict[str, int]:
        """Whole seconds, rounded up, until the messages that are not due yet become due, by
        their keys. The clock is read once.
        """
        now_us = self.now_us()
        return {
            message.key: -(-wait_us // 1_000_000)
            for message in messages
            if message.instant_us is not None and (wait_us := message.instant_us - now_us) > 0
        }


def late_ms(instant_us: int | None, now_us: int) -> int | None:
    """Whole milliseconds, rounded down, since the instant of a Due; negative before it, None for an
    infinite Due.
    """
    return None if instant_us is None else (now_us - instant_us) // 1_000


_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_TOLD_AFTER_SECONDS = 2.0


class Patience:
    """Waits `seconds` in all, however many locks share it, and not beyond `is_stopped()`.

    A holder may be frozen, so no wait for a lock is without an end. 0: never waits. A wait of more
    than 2 s is logged.
    """

    def __init__(
        self,
        seconds: float,
        is_stopped: Callable[[], bool] = lambda: False,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or Clock()
        self._left = seconds
        self._waited = 0.0
        self.is_stopped = is_stopped

    def wait(self, holder: Callable[[], str]) -> bool:
        """Wait a moment before the next try. Returns False, at once, if it is time to give up.
        `holder` says who holds the lock.
        """
        if self._left <= 0 or self.is_stopped():
            return False
        seconds = min(_POLL_SECONDS, self._left)
        self.clock.sleep(seconds)
        self._left -= seconds
        if self._waited <= _TOLD_AFTER_SECONDS < self._waited + seconds:
            _log.warning("Waiting for a lock: %s", holder())
        self._waited += seconds
        return True


NO_PATIENCE = Patience(0)


# Shorter ones are not reported.
LONG_SECONDS = 2.0
# The services that a sweep waits for while it holds no message.
STORE, QUEUES, STORAGE = "store", "queues", "ledger storage"
# What rows of the journal wait for.
LEDGER = "ledger"


@dataclass(frozen=True, slots=True)
class Wait:
    """`what` is waited for: a few words, the same each time. `why` is a sentence for people.
    `since` is by `time.monotonic()`.
    """

    what: str
    why: str
    since: float

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.since


class Waits:
    """The current waits of one source, also waits that block no message, such as rows that wait for
    a lock of the ledger; and when its sweep made progress last, and had delivered all that was due.
    Any thread may ask.
    """

    # In seconds of `time.monotonic`; None: not yet.
    progressed_at: float | None = None
    caught_up_at: float | None = None

    def __init__(self) -> None:
        self._under_way: dict[str, Wait] = {}

    def progressed(self) -> None:
        """Note that a batch was committed, or that all that is left waits for its limit."""
        self.progressed_at = time.monotonic()

    def caught_up(self, seconds_ago: float) -> None:
        """Note that all that was due `seconds_ago`, and could be delivered, has been."""
        self.caught_up_at = time.monotonic() - seconds_ago

    def begin(self, what: str, why: str) -> None:
        """Note a wait. A current one continues, with the last given reason."""
        before = self._under_way.get(what)
        since = time.monotonic() if before is None else before.since
        self._under_way[what] = Wait(what, why, since)

    def end(self, what: str) -> None:
        """Note that a wait is over, if there was one."""
        self._under_way.pop(what, None)

    @contextmanager
    def waiting(self, what: str, why: str) -> Iterator[None]:
        self.begin(what, why)
        try:
            yield
        finally:
            self.end(what)

    def long(self) -> Sequence[Wait]:
        """The waits that have taken longer than two seconds."""
        return [each for each in list(self._under_way.values()) if each.seconds > LONG_SECONDS]
