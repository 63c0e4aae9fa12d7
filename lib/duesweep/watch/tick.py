"""One tick of a watcher: look at the store, and sweep what is due."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from duesweep.api.engines import opened_engine
from duesweep.api.look import Look, NextDue, always_needs_spark, check, is_for_spark, look
from duesweep.core.account import SweepReport
from duesweep.core.errors import NothingDueError, StoreError
from duesweep.core.policy import LookAhead
from duesweep.core.world import LEDGER, QUEUES, STORAGE, STORE
from duesweep.stores.base import DriverSession
from duesweep.sweep.job import SweepContext
from duesweep.sweep.stop import Stop
from duesweep.sweep.sweep import sweep

# So that no tick takes so long that a watcher which works looks like one that hangs.
MOST_TICK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Tick:
    """What a tick did. `report` is its sweep's, None where there was nothing to do; `next_due` is
    known only then. `is_much`: there was enough for Spark. `seconds`: how long it took.
    `ledger_error`: why the ledger has not got all that the journal has; messages go all the same.
    """

    report: SweepReport | None = None
    next_due: NextDue | None = None
    is_much: bool = False
    seconds: float = 0.0
    ledger_error: str | None = None

    @property
    def has_moved(self) -> bool:
        """Whether any message left the store, or counted a failure."""
        return self.report is not None and self.report.claimed > 0

    @property
    def is_caught_up(self) -> bool:
        """Whether it left no message that could have been delivered. What waits for an open breaker
        could not.
        """
        report = self.report
        if report is None:
            return True
        blocked = sum(each.left for each in report.breakers if not each.is_closed)
        return report.skipped == 0 and report.left <= blocked


class Ticker:
    """Sweeps one store again and again. With `has_spark`, it sweeps on Spark where there is enough
    for Spark; without, it sweeps only so many of them in one tick, in this process.

    `has_spark` is True also where there is no tick without Spark.

    It never looks ahead: messages are sent when they are due. `progressed` is called when a batch
    is committed.
    """

    def __init__(
        self,
        context: SweepContext,
        stop: Stop,
        *,
        has_spark: bool,
        progressed: Callable[[], object] | None = None,
    ) -> None:
        self._stop = stop
        self._is_spark_there = has_spark
        self._progressed = progressed
        self.use(context)
        self._context = self._next
        self._sessions = ExitStack()
        self._session: DriverSession | None = None

    def use(self, context: SweepContext) -> None:
        """Work with this context from the next tick on. Any thread may call it."""
        self._next = replace(context, look_ahead=LookAhead(), repeats=True)

    @property
    def has_spark(self) -> bool:
        """Whether it sweeps on Spark where there is enough for Spark."""
        return self._is_spark_there or always_needs_spark(self._context)

    @property
    def is_looking(self) -> bool:
        """Whether it has waited long for its services, with no message in hand."""
        return any(each.what in {STORE, QUEUES, STORAGE} for each in self._stop.waits.long())

    def tick(self) -> Tick:
        """Look, and sweep if there is work. Raises what `look_at` and `sweep` raise."""
        if self._context is not self._next:
            self.close()
            self._context = self._next
        began = time.monotonic()
        return replace(self._tick(), seconds=time.monotonic() - began)

    def close(self) -> None:
        """End the session."""
        self._sessions.close()
        self._session = None

    def _tick(self) -> Tick:
        context = self._context
        most = None if self.has_spark else context.spark_from
        # Without the time limit: a look that takes long is no reason to leave what it found.
        with self._stop.waits.waiting(STORE, "The store has not answered yet what is due"):
            seen = self._look(self._stop.part(most=most))
        now = context.world.clock.now().timestamp()
        stop = self._stop.part(now + MOST_TICK_SECONDS, most)
        if not seen.has_work:
            # Others have settled what waited for the ledger.
            self._stop.waits.end(LEDGER)
        if not seen.has_work or stop.is_wanted:
            return Tick(next_due=seen.next_due)
        # What a sweep needs may have changed since the session was opened.
        with self._stop.waits.waiting(QUEUES, "The queues' servers have not answered yet"):
            context.queue.check(context.error_queue)
        on_spark = self.has_spark and seen.needs_spark
        with opened_engine(context, on_spark=on_spark, progressed=self._progressed) as engine:
            try:
                report = sweep(engine, context, reach=seen.reach(context), stop=stop)
            except NothingDueError as error:
                return Tick(ledger_error=str(error))
        return Tick(report, is_much=seen.needs_spark, ledger_error=report.ledger_error)

    def _look(self, stop: Stop) -> Look:
        """Look with the session that is there, if that still works, else with a new one. To open
        and check one takes longer than all the rest of a look.
        """
        if self._session is not None:
            try:
                return look(self._session, self._context, stop, is_for_spark)
            except StoreError:
                self.close()
        try:
            self._session = self._sessions.enter_context(self._context.store.open_driver())
            check(self._session, self._context)
            return look(self._session, self._context, stop, is_for_spark)
        except BaseException:
            self.close()
            raise
