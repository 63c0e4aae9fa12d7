"""The parts of a sweep as plain values, the part that every slice gets, and the contract of an
engine; spans, which say how long steps took.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, Protocol

from duesweep.core.account import BreakerReport, SliceEnd, SweepReport, SweepTally
from duesweep.core.errors import Problem
from duesweep.core.policy import (
    DEFAULT_TIMEOUTS,
    BatchSize,
    BreakerTimes,
    LedgerWriter,
    LookAhead,
    RateLimits,
    Retry,
    Timeouts,
)
from duesweep.core.world import World
from duesweep.queues.base import Queue
from duesweep.stores.base import DriverSession, Store
from duesweep.stores.due import Due, Horizon, Slices
from duesweep.stores.sweeps import SweepRun
from duesweep.sweep.stop import Stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from duesweep.ledger.ledger import Ledger
    from duesweep.sweep.limits import Limited

Attributes = Mapping[str, str | int]


def attributes_of(report: SweepReport) -> Attributes:
    """A span's attributes of a sweep."""
    return {
        "duesweep.sweep_id": report.sweep_id,
        "duesweep.outcome": report.outcome,
        "duesweep.found": report.found,
        "duesweep.dispatched": report.dispatched,
        "duesweep.failed": report.failed,
        "duesweep.exhausted": report.exhausted,
        "duesweep.left": report.left,
    }


@dataclass(frozen=True, slots=True)
class Tracing:
    """Spans of a sweep, in the process that runs it. It never raises. This one records nothing."""

    def recording(
        self,
        name: str,  # noqa: ARG002 - for spans that record
        attributes: Attributes,  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        """A span above the spans of its block; it sends them all at its end."""
        return nullcontext()

    def span(self, name: str) -> AbstractContextManager[None]:  # noqa: ARG002
        """A span below this thread's open span."""
        return nullcontext()

    def note(self, attributes: Attributes) -> None:
        """Add attributes to the span that is open in this thread."""

    def fail(self, kind: str, reason: str) -> None:
        """Say of the span that is open in this thread that it failed."""


@dataclass(frozen=True, slots=True)
class SweepContext:
    """`slices` 0 means one for each core. Fewer due messages than `spark_from` need no Spark; 0:
    always Spark; None: never. Messages due before `cutoff` are left; None: no message is.
    `own_name` is the endpoint's name, for patterns of destinations. `objective_seconds` is how late
    a message may be; None: there is no objective. `repeats`: a watcher sweeps, again and again, so
    due messages must not wait for the ledger.
    """

    store: Store
    queue: Queue
    ledger_root: str
    ledger_writer: LedgerWriter
    batch_size: BatchSize
    retry: Retry
    slices: int = 0
    spark_from: int | None = 0
    look_ahead: LookAhead = field(default_factory=LookAhead)
    cutoff: datetime | None = None
    breaker: BreakerTimes = field(default_factory=BreakerTimes)
    rate_limits: RateLimits = field(default_factory=RateLimits)
    own_name: str = ""
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    objective_seconds: float | None = None
    repeats: bool = False
    tracing: Tracing = field(default_factory=Tracing)
    world: World = field(default_factory=World)

    @property
    def may_move(self) -> bool:
        """Whether the store may put messages into queues itself: those are in its own
        transaction.
        """
        return self.queue.shares_transaction

    def new_tally(self) -> SweepTally:
        """For the messages of one sweep."""
        seconds = self.objective_seconds
        return SweepTally(None if seconds is None else seconds * 1_000)

    def reach(self, horizon: Horizon) -> Horizon:
        """The server's time, `horizon`, moved ahead as far as this sweep looks."""
        ahead = self.look_ahead.seconds(self.world.clock.now().timestamp())
        found = horizon.looking_ahead(timedelta(seconds=ahead))
        return found if self.cutoff is None else found.cut_off(self.cutoff)

    def open_ledger(self, spark: "SparkSession | None" = None) -> "Ledger":
        """The ledger; Spark's writer needs the session."""
        from duesweep.ledger.ledger import open_ledger  # noqa: PLC0415 - no slice needs it

        return open_ledger(self.ledger_root, self.ledger_writer, spark, self.timeouts)


class Planned(NamedTuple):
    """A plan that was made before the sweep, its horizon, and the checked session that made it: the
    sweep continues with that, and closes `opened` at its end.
    """

    horizon: Horizon
    slices: Slices
    session: DriverSession
    opened: ExitStack


class CutShort(NamedTuple):
    """Why an engine ended before all slices were done. `is_lasting`: the next sweep would end in
    the same way, until a person corrects something.
    """

    reason: str
    is_lasting: bool = False


class Dispatched(NamedTuple):
    """How the dispatch of a plan ended. `cut_short`: why the engine ended before all slices were
    done; None: all were. `end` of all slices, without messages that wait for their limit; None: the
    engine cannot tell.
    """

    cut_short: CutShort | None = None
    end: SliceEnd | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """What every slice of a sweep gets: Spark ships it to executors. `shares` are how many messages
    each slice may claim, by its number; None: all. `first_slice` is how many slices the sweep had
    before, if it was planned again: the journal counts slices on. `outages` are the breakers that
    were open at the end of the round before, to be tried in `tries_in` seconds. `limited` lets
    messages go in this process that wait for their limit; None: their slice does. `stop` says
    whether a stop is wanted, and its `waits` get the progress; a copy of it in another process is
    of no use.
    """

    context: SweepContext
    run: SweepRun
    shares: tuple[int, ...] | None = None
    first_slice: int = 0
    outages: tuple[BreakerReport, ...] = ()
    tries_in: float = 0.0
    limited: "Limited | None" = None
    stop: Stop = field(default_factory=Stop)


class Engine(Protocol):
    """Runs all slices of a plan. The guarantee does not depend on it: the store's transactions let
    any slice run twice, or end anywhere.
    """

    @property
    def name(self) -> str:
        """As `sweeps` and the summary show it."""

    @property
    def spark(self) -> "SparkSession | None":
        """The session with which the ledger may be written, or None."""

    @property
    def without_spark(self) -> Problem | None:
        """Why Spark does not dispatch, which was to; None: it does, or was not to."""

    def plan(self, due: Due, horizon: Horizon, context: SweepContext) -> Slices:
        """The plan of a sweep, cut into slices as they suit this engine."""

    def dispatch(self, due: Due, plan: Slices, job: Job) -> Dispatched:
        """Dispatch all slices."""

    def close(self) -> None:
        """Close the sessions that are kept for another plan of the same sweep."""
