"""What every slice of a sweep needs."""

from collections.abc import Callable
from dataclasses import dataclass, field

from duesweep.core.breaker import BreakerLimits
from duesweep.core.clock import Clock, SystemClock
from duesweep.core.policy import BatchLimits, Retry
from duesweep.core.rate_limits import RateLimits
from duesweep.core.tracing import NoTracing, Tracing
from duesweep.queues.base import Queue
from duesweep.stores.base import Store
from duesweep.stores.values import SweepRun


def _never() -> bool:
    return False


def _tell_nobody() -> None:
    """For a job whose progress nobody asks for."""


@dataclass(frozen=True, slots=True)
class DispatchJob:
    """Everything that a slice needs, as plain values: Spark ships it to executors. `own_name`
    is the endpoint's name, for patterns of destinations. `shares` are how many messages each slice
    may claim, by its number; None: all. `first_slice` is how many slices the sweep had before,
    if it was planned again: the journal counts slices on. Once `is_stopped`, no new session is
    opened. `progressed` is called when a batch is committed, and once a second while all that is
    left waits for its limit or a breaker; it stays in this process.
    """

    store: Store
    queue: Queue
    run: SweepRun
    limits: BatchLimits
    retry: Retry
    max_exhausted: int
    error_queue: str | None
    breaker: BreakerLimits = field(default_factory=BreakerLimits)
    own_name: str = ""
    rate_limits: RateLimits = field(default_factory=RateLimits)
    shares: tuple[int, ...] | None = None
    first_slice: int = 0
    is_stopped: Callable[[], bool] = _never
    clock: Clock = field(default_factory=SystemClock)
    tracing: Tracing = field(default_factory=NoTracing)
    progressed: Callable[[], object] = _tell_nobody
