"""What a sweep works with, as plain values, and what of it every slice gets; spans, which tell what
took how long, and about which messages; and when a sweep is to stop early.

At a stop batches in hand are finished, and the rest is left to the next sweep. The store's database
knows when a sweep is to stop, because each batch asks there whether the sweep is still open. So it
does not matter which engine runs the slices, or where.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import accumulate
from typing import TYPE_CHECKING

from duesweep.core.message import Message
from duesweep.core.policy import (
    DEFAULT_TIMEOUTS,
    BatchLimits,
    BreakerLimits,
    LedgerWriter,
    LookAhead,
    RateLimits,
    Retry,
    Timeouts,
)
from duesweep.core.world import Clock, Waits, World
from duesweep.queues.base import Queue
from duesweep.stores.base import DriverSession, Horizon, Store, SweepRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from duesweep.ledger.ledger import Ledger

Attributes = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class Tracing:
    """A plain value: tasks get one that goes on from the driver's. It never raises. This one
    records nothing.
    """

    def recording(
        self,
        name: str,  # noqa: ARG002 - for those that record
        attributes: Attributes,  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        """A span that has those of its block below it, and sends them all at its end."""
        return nullcontext()

    def span(
        self,
        name: str,  # noqa: ARG002 - for those that record
        attributes: Attributes,  # noqa: ARG002
        messages: Iterable[Message] = (),  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        """A span below the one that is open in this thread, with links to the spans in which these
        messages were sent.
        """
        return nullcontext()

    def note(self, attributes: Attributes) -> None:
        """Add attributes to the span that is open in this thread."""

    def for_tasks(self) -> "Tracing":
        """What records below the span that is open in this thread, in another process too."""
        return self


@dataclass(frozen=True, slots=True)
class SweepContext:
    """`slices` 0 means one for each core. Fewer due messages than `spark_from` need no Spark; 0:
    always Spark. `error_queue` is an address; None: no error queue. `own_name` is the
    endpoint's name, for patterns of destinations. `objective_seconds` is how late a message may be;
    None: there is no objective. `repeats`: a watcher sweeps, again and again, so due messages must
    not wait for the ledger.
    """

    store: Store
    queue: Queue
    ledger_root: str
    ledger_writer: LedgerWriter
    limits: BatchLimits
    retry: Retry
    max_exhausted: int
    error_queue: str | None
    slices: int = 0
    spark_from: int = 0
    look_ahead: LookAhead = field(default_factory=LookAhead)
    breaker: BreakerLimits = field(default_factory=BreakerLimits)
    rate_limits: RateLimits = field(default_factory=RateLimits)
    own_name: str = ""
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    objective_seconds: float | None = None
    repeats: bool = False
    tracing: Tracing = field(default_factory=Tracing)
    world: World = field(default_factory=World)

    def reach(self, horizon: Horizon) -> Horizon:
        """The server's time, `horizon`, moved ahead as far as this sweep looks."""
        ahead = self.look_ahead.seconds(self.world.clock.now().timestamp())
        return horizon.looking_ahead(timedelta(seconds=ahead))

    def open_ledger(self, spark: "SparkSession | None" = None) -> "Ledger":
        """The ledger; Spark's writer needs the session."""
        from duesweep.ledger.ledger import open_ledger  # noqa: PLC0415 - no slice needs it

        return open_ledger(self.ledger_root, self.ledger_writer, spark, self.timeouts)


def _never() -> bool:
    return False


def _tell_nobody() -> None:
    """For a job whose progress nobody asks for."""


@dataclass(frozen=True, slots=True)
class Job:
    """What every slice of a sweep gets: Spark ships it to executors. `shares` are how many messages
    each slice may claim, by its number; None: all. `first_slice` is how many slices the sweep had
    before, if it was planned again: the journal counts slices on. Once `is_stopped`, no new session
    is opened. `progressed` is called when a batch is committed, and once a second while all that is
    left waits for its limit or a breaker; it stays in this process.
    """

    context: SweepContext
    run: SweepRun
    shares: tuple[int, ...] | None = None
    first_slice: int = 0
    is_stopped: Callable[[], bool] = _never
    progressed: Callable[[], object] = _tell_nobody


_POLL_SECONDS = 0.2


class _Asked:
    """Whether somebody asked for a stop; shared by a stop and its parts."""

    is_asked = False


class Stop:
    """Says when one sweep is to stop: as soon as somebody calls `ask`, and at `at` at the latest,
    in seconds since 1970-01-01 UTC; None: only when asked.

    `most`: it may claim so many messages, those that have been due for the longest; None: all.
    `waits` are told of each wait that may take long; parts share them.
    """

    def __init__(
        self, at: float | None = None, most: int | None = None, clock: Clock | None = None
    ) -> None:
        self.waits = Waits()
        self._most = most
        self._at = at
        self._asked = _Asked()
        self._clock = clock or Clock()

    def ask(self) -> None:
        """Stop as soon as possible. A handler of signals may call it."""
        self._asked.is_asked = True

    def part(self, at: float | None = None, most: int | None = None) -> "Stop":
        """For one of several sweeps: it stops when this one does, and at `at` at the latest. It may
        claim `most` messages, by default as many as this one.
        """
        times = [each for each in (self._at, at) if each is not None]
        stop = Stop(min(times, default=None), self._most if most is None else most, self._clock)
        stop._asked, stop.waits = self._asked, self.waits
        return stop

    @property
    def is_wanted(self) -> bool:
        """Whether the sweep is to stop now."""
        return self._seconds_left() == 0

    def wait(self, seconds: float) -> None:
        """Wait for so long, or until it is wanted."""
        end = self._clock.seconds() + seconds
        # In short naps: the handler of a signal does no more than `ask`.
        while not self.is_wanted and (left := end - self._clock.seconds()) > 0:
            self._clock.sleep(min(left, _POLL_SECONDS))

    def shares(self, planned: Sequence[int]) -> tuple[int, ...] | None:
        """How many messages each slice of a plan may claim, the first slices first; None: all."""
        if self._most is None or sum(planned) <= self._most:
            return None
        before = accumulate(planned, initial=0)
        return tuple(
            max(0, min(count, self._most - earlier))
            for count, earlier in zip(planned, before, strict=False)
        )

    def most_of(self, found: int) -> int:
        """How many of so many messages the sweep may claim."""
        return found if self._most is None else min(found, self._most)

    @contextmanager
    def passed_on(self, store: Store, session: DriverSession, run: SweepRun) -> Iterator[None]:
        """Within the block, tell `store` when the sweep is to stop."""
        seconds = self._seconds_left()
        if seconds is not None:
            session.stop_sweep(run.sweep_id, seconds)
        is_over = threading.Event()
        # The session of the block may be waiting for an answer when somebody asks.
        thread = threading.Thread(
            target=self._tell, args=(store, run, is_over), name="duesweep stop", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            # A thread whose store does not answer ends later by itself.
            thread.join(_POLL_SECONDS)

    def _tell(self, store: Store, run: SweepRun, is_over: threading.Event) -> None:
        while not is_over.wait(_POLL_SECONDS):
            if not self._asked.is_asked:
                continue
            # After an error, again in the next round; a custom store may raise anything.
            with suppress(Exception), store.open_driver() as session:
                session.stop_sweep(run.sweep_id, 0)
                return

    def _seconds_left(self) -> float | None:
        if self._asked.is_asked:
            return 0
        return None if self._at is None else max(0, self._at - self._clock.now().timestamp())
