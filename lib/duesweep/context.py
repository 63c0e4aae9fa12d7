"""Everything that a sweep works with, as one plain value."""

import time
from dataclasses import dataclass, field
from datetime import timedelta

from duesweep.core.breaker import BreakerLimits
from duesweep.core.ledger_writer import LedgerWriter
from duesweep.core.policy import BatchLimits, LookAhead, Retry
from duesweep.core.rate_limits import RateLimits
from duesweep.core.timeouts import DEFAULT_TIMEOUTS, Timeouts
from duesweep.core.tracing import NoTracing, Tracing
from duesweep.queues.base import Queue
from duesweep.stores.base import Store
from duesweep.stores.values import Horizon


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
    tracing: Tracing = field(default_factory=NoTracing)

    def reach(self, horizon: Horizon) -> Horizon:
        """The server's time, `horizon`, moved ahead as far as this sweep looks."""
        ahead = self.look_ahead.seconds(time.time())
        return horizon.looking_ahead(timedelta(seconds=ahead))
