"""The engine that dispatches in this process."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from duesweep.core.account import SliceEnd, add_ends
from duesweep.core.errors import Problem
from duesweep.core.policy import MOST_IN_A_SWEEP, Slicing, slicing
from duesweep.stores.due import Due, Horizon, Slices
from duesweep.sweep.claim_keys import ClaimKeys, read_claim_keys
from duesweep.sweep.job import CutShort, Dispatched, Job, SweepContext
from duesweep.sweep.limits import INTERRUPTED_SECONDS, SIGNAL_SECONDS, wait_for_limits
from duesweep.sweep.sessions import KeptSessions
from duesweep.sweep.slice import Slice, cut_short_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A third one takes one more connection, and was not reliably faster on two cores.
_MOST_SESSIONS = 2


@dataclass(frozen=True, slots=True)
class InProcessEngine:
    """Runs one slice after the other, each on several sessions at once: while one of them waits for
    the server, another one works. They stay open for the next slices, until `close`. Reads claim
    keys over the driver's session. `spark` is for the ledger.
    """

    name: str = "in-process"
    spark: "SparkSession | None" = None
    without_spark: Problem | None = None
    sessions: KeptSessions = field(default_factory=KeptSessions)

    def plan(self, due: Due, horizon: Horizon, context: SweepContext) -> Slices:
        """One slice, if it fits into memory. More than a sweep has are read slice by slice."""
        cut = cut_in_process(context)
        plan = due.plan_at_once(horizon, cut, MOST_IN_A_SWEEP)
        return due.plan(horizon, cut) if plan is None else plan

    def dispatch(self, due: Due, plan: Slices, job: Job) -> Dispatched:
        """Dispatch all slices. A store that fails ends the work of its session, whose reason is
        journalled; the limits of its waits end a session whose services are silent. An unexpected
        error, or one of configuration, cuts its slice.
        """
        cut_short: CutShort | None = None
        ends: list[SliceEnd | None] = []
        numbers = range(len(plan.planned))
        slices = (_read(due, plan, number) for number in numbers)
        claim_keys = next(slices, None)
        while claim_keys is not None:
            sessions = sessions_for(job.context, len(claim_keys.keys))
            of_slice = Slice(job, len(ends), claim_keys, sessions)
            with self._working(of_slice) as futures:
                # While the sessions work, the next slice is read.
                claim_keys = next(slices, None)
            cut_short = next(filter(None, [cut_short, *(each.result() for each in futures)]), None)
            ends.append(of_slice.end)
        known = [end for end in ends if end is not None]
        end = add_ends(known) if len(known) == len(ends) else None
        return Dispatched(cut_short, end)

    @contextmanager
    def _working(self, of_slice: Slice) -> Iterator[Sequence["Future[CutShort | None]"]]:
        """Dispatch a slice in threads while the block runs, and wait for their ends after it.

        If the block raises, they end after their current batches, and the slice counts as cut. A
        batch whose server does not answer is not awaited: it commits as a whole or not at all.
        """

        def run(end: "Future[CutShort | None]") -> None:
            try:
                end.set_result(self._work(of_slice))
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
                end.set_exception(error)

        futures: list[Future[CutShort | None]] = [Future() for _ in range(of_slice.sessions)]
        try:
            for session, future in enumerate(futures, 1):
                # A daemon: a process that is to end at once does not wait for it.
                name = f"duesweep slice {of_slice.number}, session {session}"
                threading.Thread(target=run, args=[future], name=name, daemon=True).start()
            yield futures
            while wait(futures, SIGNAL_SECONDS).not_done:
                pass
        except BaseException:
            of_slice.interrupt()
            wait(futures, INTERRUPTED_SECONDS)
            raise

    def _work(self, of_slice: Slice) -> CutShort | None:
        """Work on a slice. An unexpected error, or one of configuration, is returned: the other
        sessions continue, and the sweep is closed with the reason.
        """
        try:
            worker = of_slice.work(self.sessions.opened)
            if worker is not None:
                wait_for_limits(worker, self.sessions.opened)
        except Exception as error:  # noqa: BLE001 - of whatever kind
            return cut_short_by(error, of_slice)
        return None

    def close(self) -> None:
        self.sessions.close()


def cut_in_process(context: SweepContext) -> Slicing:
    """How a plan is cut for a sweep in this process. While its sessions work on a slice, the next
    one is read, and has to fit into memory too.
    """
    return replace(slicing(2, context.batch_size.rows), slices=1)


def sessions_for(context: SweepContext, messages: int) -> int:
    """How many sessions dispatch a number of messages in this process: no more than batches."""
    wanted = min(context.slices or _MOST_SESSIONS, _MOST_SESSIONS)
    return max(1, min(wanted, -(-messages // context.batch_size.rows)))


def _read(due: Due, plan: Slices, number: int) -> ClaimKeys:
    claim_keys = read_claim_keys(due.claim_keys(plan, number))
    # Each row that was read with the plan has the total of all slices.
    return replace(claim_keys, total=plan.planned[number]) if plan.read else claim_keys
