"""The engine that dispatches in this process."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from duesweep.core import logs
from duesweep.core.account import add_ends
from duesweep.core.errors import ConfigError, DuesweepError, Problem
from duesweep.core.policy import MOST_IN_A_SWEEP, Slicing, slicing
from duesweep.stores.due import Due, Horizon, Slices
from duesweep.sweep.job import CutShort, Dispatched, Job, SweepContext
from duesweep.sweep.sessions import KeptSessions
from duesweep.sweep.slice import ClaimKeys, Slice, read_claim_keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# An interrupted sweep waits at most this long for its current batches.
_INTERRUPTED_SECONDS = 0.5
# A signal that comes right before a wait does not end it: its exception is raised after the wait.
_SIGNAL_SECONDS = 0.5


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
        ends: list[Dispatched] = []
        numbers = range(len(plan.planned))
        slices = (_read(due, plan, number) for number in numbers)
        claim_keys = next(slices, None)
        while claim_keys is not None:
            with _working(job, len(ends), claim_keys, self.sessions) as at_work:
                # While the sessions work, the next slice is read.
                claim_keys = next(slices, None)
            of_slice = [each.result() for each in at_work]
            cut_short = next(filter(None, [each.cut_short for each in of_slice]), None)
            # The last session to end knows.
            ends.append(
                Dispatched(cut_short, next(filter(None, [each.end for each in of_slice]), None))
            )
        cut_short = next(filter(None, [each.cut_short for each in ends]), None)
        known = [each.end for each in ends if each.end is not None]
        return Dispatched(cut_short, add_ends(known) if len(known) == len(ends) else None)

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


@contextmanager
def _working(
    job: Job, number: int, claim_keys: ClaimKeys, kept: KeptSessions
) -> Iterator[Sequence["Future[Dispatched]"]]:
    """Dispatch a slice in threads while the block runs, and wait for their ends after the block.

    If the block raises, they end after their current batches, and the slice counts as cut. A batch
    whose server does not answer is not awaited: it commits as a whole or not at all.
    """
    sessions = sessions_for(job.context, len(claim_keys.keys))
    of_slice = Slice(job, number, claim_keys, sessions)

    def run(end: "Future[Dispatched]") -> None:
        try:
            end.set_result(_work(of_slice, kept))
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
            end.set_exception(error)

    ends: list[Future[Dispatched]] = [Future() for _ in range(of_slice.sessions)]
    try:
        for session, end in enumerate(ends, 1):
            # A daemon: a process that is to end at once does not wait for it.
            name = f"duesweep slice {number}, session {session}"
            threading.Thread(target=run, args=(end,), name=name, daemon=True).start()
        yield ends
        while wait(ends, _SIGNAL_SECONDS).not_done:
            pass
    except BaseException:
        of_slice.interrupt()
        wait(ends, _INTERRUPTED_SECONDS)
        raise


def _work(of_slice: Slice, kept: KeptSessions) -> Dispatched:
    """Work on a slice. An unexpected error, or one of configuration, is returned: the other
    sessions continue, and the sweep is closed with the reason.
    """
    try:
        return Dispatched(end=of_slice.work(kept.opened))
    except ConfigError as error:
        return Dispatched(CutShort(str(error), is_lasting=True))
    except DuesweepError:
        raise
    except Exception as error:  # noqa: BLE001 - of whatever kind
        sweep_id, number = of_slice.job.run.sweep_id, of_slice.number
        logs.exception("slice_failed", sweep_id=str(sweep_id), slice=number)
        why = f"An unexpected error ended a slice: {type(error).__name__}: {error}"
        return Dispatched(CutShort(f"{why}; please report this, with the log"))
