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
from duesweep.sweep.claim_keys import ClaimKeys, read_claim_keys
from duesweep.sweep.job import CutShort, Dispatched, Job, SweepContext
from duesweep.sweep.sessions import KeptSessions, Turns
from duesweep.sweep.slice import Slice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# An interrupted sweep waits at most this long for its current batches.
_INTERRUPTED_SECONDS = 0.5
# A signal that comes right before a wait does not end it: its exception is raised after the wait.
_SIGNAL_SECONDS = 0.5


# A third one takes one more connection, and was not reliably faster on two cores.
_MOST_SESSIONS = 2
# This many sessions may wait for limits while others begin. Each takes a connection or two.
_MOST_WAITING = 2


@dataclass(frozen=True, slots=True)
class InProcessEngine:
    """Runs one slice after the other, each on several sessions at once: while one of them waits for
    the server, another one works. They stay open for the next slices, until `close`. Reads claim
    keys over the driver's session. `spark` is for the ledger; messages in slices that are `waiting`
    wait for their limit.
    """

    name: str = "in-process"
    spark: "SparkSession | None" = None
    without_spark: Problem | None = None
    sessions: KeptSessions = field(default_factory=KeptSessions)
    waiting: list["_AtWork"] = field(default_factory=list)
    slots: threading.Semaphore = field(
        default_factory=lambda: threading.Semaphore(_MOST_WAITING), repr=False
    )

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
            with self._working(job, len(ends), claim_keys) as at_work:
                # While the sessions work, the next slice is read.
                claim_keys = next(slices, None)
            if not at_work.is_over:
                # `finish` returns why one was cut short.
                self.waiting[:] = [*filter(_AtWork.is_to_finish, self.waiting), at_work]
            ends.append(at_work.so_far())
        cut_short = next(filter(None, [each.cut_short for each in ends]), None)
        known = [each.end for each in ends if each.end is not None]
        end = add_ends(known) if len(known) == len(ends) else None
        waits = any(each.waits for each in ends)
        return Dispatched(cut_short, end, waits, any(each.left_limited for each in ends))

    @contextmanager
    def _working(self, job: Job, number: int, claim_keys: ClaimKeys) -> Iterator["_AtWork"]:
        """Dispatch a slice in threads while the block runs. After the block wait for their ends; if
        the job `goes_on`, not for sessions whose last messages wait for their limit.

        If the block raises, they end after their current batches, and the slice counts as cut. A
        batch whose server does not answer is not awaited: it commits as a whole or not at all.
        """
        sessions = sessions_for(job.context, len(claim_keys.keys))
        of_slice = Slice(job, number, claim_keys, sessions)

        def run(end: "Future[Dispatched]", turns: Turns) -> None:
            try:
                end.set_result(_work(of_slice, self.sessions, turns if job.goes_on else None))
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
                end.set_exception(error)
            finally:
                if not turns.waits.done():
                    turns.waits.set_result(None)

        at_work = _AtWork(of_slice, [Future() for _ in range(of_slice.sessions)])
        # Done when a session has ended, or only has messages left that wait.
        turns = [Turns(self.slots) for _ in at_work.ends]
        try:
            for session, futures in enumerate(zip(at_work.ends, turns, strict=True), 1):
                # A daemon: a process that is to end at once does not wait for it.
                name = f"duesweep slice {number}, session {session}"
                threading.Thread(target=run, args=futures, name=name, daemon=True).start()
            yield at_work
            while wait([each.waits for each in turns], _SIGNAL_SECONDS).not_done:
                pass
        except BaseException:
            at_work.interrupt()
            raise

    @property
    def is_waiting(self) -> bool:
        return not all(one.is_over for one in self.waiting)

    def finish(self) -> CutShort | None:
        for each in self.waiting:
            each.of_slice.leaves_waiting = True
        for each in self.waiting:
            while wait(each.ends, _SIGNAL_SECONDS).not_done:
                pass
        found = [each.so_far().cut_short for each in self.waiting]
        self.waiting.clear()
        return next(filter(None, found), None)

    def close(self) -> None:
        # After an error.
        for each in self.waiting:
            each.interrupt()
        self.waiting.clear()
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


@dataclass(frozen=True, slots=True)
class _AtWork:
    """A slice, and the end of each of its sessions."""

    of_slice: Slice
    ends: Sequence["Future[Dispatched]"]

    @property
    def is_over(self) -> bool:
        return all(end.done() for end in self.ends)

    def so_far(self) -> Dispatched:
        """How it ended, or has come to the messages that wait for their limit."""
        done = [end.result() for end in self.ends if end.done()]
        cut_short = next(filter(None, [each.cut_short for each in done]), None)
        if (end := self.of_slice.end_without_waiting) is not None:
            return Dispatched(cut_short, end, waits=True, left_limited=self.of_slice.left_limited)
        # The last session to end knows.
        return Dispatched(cut_short, next(filter(None, [each.end for each in done]), None))

    def is_to_finish(self) -> bool:
        """Whether it still works, or was cut short."""
        return not self.is_over or self.so_far().cut_short is not None

    def interrupt(self) -> None:
        """End all its sessions, each after its current batch."""
        self.of_slice.interrupt()
        wait(self.ends, _INTERRUPTED_SECONDS)


def _work(of_slice: Slice, kept: KeptSessions, turns: Turns | None) -> Dispatched:
    """Work on a slice. An unexpected error, or one of configuration, is returned: the other
    sessions continue, and the sweep is closed with the reason.
    """
    try:
        return Dispatched(end=of_slice.work(kept.opened, turns))
    except ConfigError as error:
        return Dispatched(CutShort(str(error), is_lasting=True))
    except DuesweepError:
        raise
    except Exception as error:  # noqa: BLE001 - of whatever kind
        sweep_id, number = of_slice.job.run.sweep_id, of_slice.number
        logs.exception("slice_failed", sweep_id=str(sweep_id), slice=number)
        why = f"An unexpected error ended a slice: {type(error).__name__}: {error}"
        return Dispatched(CutShort(f"{why}; please report this, with the log"))
