"""Empties a store for good: dispatches what is due, and defers the rest to the delay ladder; or
counts where its messages would go.

A handover is a sweep that looks ahead as far as the ladder reaches. Each batch is moved and removed
in one transaction. So a handover that was stopped, even by a crash, continues when it is run again.
To count, messages are claimed as a sweep would claim them, then read, and the claim is rolled back.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from duesweep.core.account import SweepReport
from duesweep.core.errors import ConfigError, DestinationError, ExitCode, MessageError, Problem
from duesweep.core.message import Message
from duesweep.core.policy import Slicing, delay_level
from duesweep.core.world import Clock, StoreClock
from duesweep.operations.run import Run, ended_run
from duesweep.queues.base import Queue, QueueSession
from duesweep.stores.base import (
    Claim,
    DriverSession,
    Horizon,
    Store,
    SweepRun,
    TaskSession,
    Unsettled,
)
from duesweep.sweep.job import SweepContext
from duesweep.sweep.slice import read_claim_keys
from duesweep.sweep.stop import Stop
from duesweep.sweep.sweep import Engine, Watch, exit_code, sweep

# 1,000 years: later than any real Due, and still a date that Python can represent.
_ALL = timedelta(days=365 * 1_000)
_TOO_LATE = "It is due later than the delay ladder can hold it"
_HOLDS_NOTHING = "It is not due, and its queue cannot hold a message until it is due"


@dataclass(frozen=True, slots=True)
class Handover:
    """What a handover did; `left` messages are still in the store."""

    report: SweepReport
    left: int

    @property
    def exit_code(self) -> ExitCode:
        """The process's exit code. A handover is done when it has left nothing in the store."""
        of_sweep = exit_code(self.report)
        if of_sweep is ExitCode.WORK_LEFT or self.left > self.report.failed:
            return ExitCode.WORK_LEFT
        return of_sweep

    @property
    def run(self) -> Run:
        """It as a run of a sweep."""
        return ended_run(self.report, self.exit_code)


class Destined(NamedTuple):
    """How many messages would go where. `level` is the delay ladder's; None: delivered at once.
    `problem` is why they would stay; None: they would go.
    """

    destination: str
    level: int | None
    problem: str | None
    messages: int


@dataclass(frozen=True, slots=True)
class Preview:
    """Where a handover would send messages; those that would stay come last."""

    destinations: Sequence[Destined]

    @property
    def exit_code(self) -> ExitCode:
        """The process's exit code."""
        has_problem = any(one.problem for one in self.destinations)
        return ExitCode.MESSAGES_FAILED if has_problem else ExitCode.DONE


@dataclass(frozen=True, slots=True)
class Aborted:
    """How many handovers and sweeps were stopped."""

    source: str
    stopped: int


def check(context: SweepContext) -> Sequence[Problem]:
    """Raise what would stop a handover, before Spark starts; what is to be noticed about the
    store.
    """
    longest_delay(context)
    with context.store.open_driver() as session:
        session.check()
        context.queue.check(context.error_queue)
        return session.notices()


def handover(
    engine: Engine,
    context: SweepContext,
    cutoff: datetime | None = None,
    watch: Watch | None = None,
    *,
    stop: Stop | None = None,
) -> Handover:
    """Hand over the messages that are due at `cutoff` or later (None: all messages).

    Raises `ConfigError` where no queue can hold messages until they are due, and what `sweep`
    raises.
    """
    report = sweep(engine, context, watch, _reach(longest_delay(context), cutoff), stop=stop)
    with context.store.open_driver() as session:
        since = session.horizon().cut_off(cutoff).since if cutoff else None
        return Handover(report, session.count_stored(since))


def preview(context: SweepContext, cutoff: datetime | None = None) -> Preview:
    """Count how many messages a handover would send to which queue, and how many would stay.

    Moves nothing.
    """
    longest_delay(context)
    found = count_destinations(context, _reach(_ALL.total_seconds(), cutoff))
    destined = [
        Destined(entry.destination or context.store.own_queue, entry.level, entry.problem, messages)
        for entry, messages in sorted(found.items(), key=lambda item: _order(item[0]))
    ]
    return Preview(destined)


def _order(entry: "PreviewEntry") -> tuple[bool, str, int, str]:
    level = -1 if entry.level is None else entry.level
    return (entry.problem is not None, entry.destination or "", level, entry.problem or "")


def abort(context: SweepContext) -> Aborted:
    """Stop the handovers and sweeps of the store that are running, each before its next batch.

    Moved messages stay in their queues, the others in the store.
    """
    with context.store.open_driver() as session:
        session.check()
        remaining = session.count_pending(session.horizon())
        stopped = sum(
            session.close_sweep(one.sweep_id, abandoned=True, remaining=remaining)
            for one in session.unsettled()
            if _is_under_way(session, one)
        )
    return Aborted(context.store.source, stopped)


def _is_under_way(session: DriverSession, unsettled: Unsettled) -> bool:
    """Whether it is a sweep that is not closed, and whose driver lives."""
    is_open = unsettled.command is None and not unsettled.is_closed
    return is_open and session.still_alive(unsettled.sweep_id)


def longest_delay(context: SweepContext) -> int:
    """For how many seconds the queues can defer a message; `ConfigError` where they cannot."""
    longest = context.queue.longest_delay
    if not longest:
        raise ConfigError(
            "None of the queues can hold messages until they are due, so nothing can be handed "
            "over",
            advice="configure a [queues] section of kind rabbitmq, and routes that lead to it",
        )
    return longest


def _reach(seconds: float, cutoff: datetime | None) -> Callable[[Horizon], Horizon]:
    def reach(horizon: Horizon) -> Horizon:
        cut = horizon.cut_off(cutoff) if cutoff else horizon
        return cut.looking_ahead(timedelta(seconds=seconds))

    return reach


class PreviewEntry(NamedTuple):
    """Where messages would go. `level` is the delay ladder's; None: delivered at once. `problem` is
    why they would stay; None: they would go. `destination` None is the endpoint's own queue.
    """

    destination: str | None
    level: int | None = None
    problem: str | None = None


class _RollBackError(Exception):
    """Rolls a claim back."""


def count_destinations(
    context: SweepContext, reach: Callable[[Horizon], Horizon]
) -> Counter[PreviewEntry]:
    """Count how many messages would go where. Rows that others have locked are not counted."""
    with context.store.open_driver() as session:
        session.check()
        run = session.open_sweep(reach(session.horizon()), prunes=False)
        try:
            plan = session.plan(run.horizon, Slicing(1))
            found: Counter[PreviewEntry] = Counter()
            for number in range(len(plan.planned)):
                keys = read_claim_keys(session.claim_keys(plan, number))
                batches = context.limits.batches(keys.keys, keys.sizes)
                found += count_batches(context.store, context.queue, run, batches)
            return found
        finally:
            # It did nothing, so the ledger needs no row of it.
            session.close_sweep(run.sweep_id, abandoned=False, remaining=0)
            session.delete_settled(run.sweep_id)


def count_batches(
    swept: Store, queues: Queue, run: SweepRun, batches: Iterable[Sequence[str]]
) -> Counter[PreviewEntry]:
    """Count where the messages that these batches of claim keys lead to would go."""
    found: Counter[PreviewEntry] = Counter()
    with swept.open_task() as store, queues.open(store) as queue:
        lookup = _DestinationLookup(queue)
        # Where claim keys are Dues, the next claim would otherwise find the same messages.
        counted: dict[str, set[str]] = {}
        store.leave_alone(counted)
        for batch in batches:
            left: Sequence[str] = batch
            while left:
                claim = _read_claim(store, run, left, counted)
                clock = StoreClock(claim.server_us, Clock())
                found.update(lookup.entry(message, clock) for message in claim.messages)
                left = claim.unread
    return found


def _read_claim(
    store: TaskSession, run: SweepRun, claim_keys: Sequence[str], counted: dict[str, set[str]]
) -> Claim:
    with suppress(_RollBackError), store.transaction():
        claim = store.claim(run, claim_keys)
        for message in claim.messages:
            counted.setdefault(store.claim_key(message), set()).add(message.key)
        raise _RollBackError
    return claim


class _DestinationLookup:
    """Says where a message would go; asks a queue once for each destination."""

    def __init__(self, queue: QueueSession) -> None:
        self._queue = queue
        self._known: dict[str | None, int | str] = {}

    def entry(self, message: Message, clock: StoreClock) -> PreviewEntry:
        """Where the message would go now."""
        if isinstance(message.headers, MessageError):
            return PreviewEntry(None, problem=str(message.headers))
        address = message.destination
        if address not in self._known:
            self._known[address] = self._longest_or_problem(address)
        known = self._known[address]
        seconds = clock.seconds_until(message)
        if isinstance(known, str):
            return PreviewEntry(address, problem=known)
        if not seconds:
            return PreviewEntry(address)
        if seconds > known:
            return PreviewEntry(address, problem=_TOO_LATE if known else _HOLDS_NOTHING)
        return PreviewEntry(address, delay_level(seconds))

    def _longest_or_problem(self, address: str | None) -> int | str:
        try:
            return self._queue.longest_delay(self._queue.resolve(address))
        except (DestinationError, MessageError) as error:
            return str(error)
