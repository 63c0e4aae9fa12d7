"""The driver's session on a relational store: what is due, and the life of its sweep or command."""

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from duesweep.core.change import Command, CommandName
from duesweep.core.patience import Patience
from duesweep.core.pauses import Pause
from duesweep.drivers.statements import retry_lost_transactions
from duesweep.errors import Problem, StoreError, make_storable
from duesweep.stores.relational.held import HeldBack
from duesweep.stores.relational.journal import RelationalJournal
from duesweep.stores.relational.kinds import TableKind
from duesweep.stores.relational.locks import LockingSession, sweep_lock, undo_lock
from duesweep.stores.relational.upkeep import RelationalUpkeep
from duesweep.stores.values import Horizon, Slices, SweepRun

_ALL = 2**62
# More than any server rounds a Due: a message must not be left out because of that.
_ROUNDING = timedelta(milliseconds=10)
_UNDO_WAIT_SECONDS = 5.0


class RelationalDriverSession(RelationalJournal, ABC):
    """Its sweep lives as long as this session. A dialect adds `check`, `horizon` and `plan`. It
    `KnowsDestinations`, unless the destination is in the headers.
    """

    def __init__(self, session: LockingSession, source: str, delayed: str, kind: TableKind) -> None:
        super().__init__(session, source, delayed)
        self._kind = kind
        self._held_back = HeldBack(self._statements, source)
        self._first_due: datetime | None = None
        # How many messages each slice of its open sweeps was planned with.
        self._planned: dict[UUID, list[int]] = {}

    @abstractmethod
    def horizon(self) -> Horizon:
        """What is due now."""

    def has_work(self, ahead: timedelta = timedelta()) -> bool:
        """Whether a message is due within `ahead` and eligible, or something is to be settled."""
        horizon = self.horizon().looking_ahead(ahead)
        pending = {
            "source": self.source,
            "horizon": self._due_text(horizon.before),
            "paused": self._pausing(),
        }
        if found := self._statements.rows("find_pending", **pending):
            self._first_due = self._instant(found[0].due)
            return True
        if self._statements.row("find_gone_attempts", source=self.source).found:
            return True
        return any(self._is_dead(sweep.sweep_id) for sweep in self._unsettled())

    def skip_held(self, horizon: Horizon) -> Horizon:
        """The same horizon, from the first message on that was eligible when `has_work` looked."""
        first = self._first_due
        return replace(horizon, since=None if first is None else first - _ROUNDING)

    def count_pending(self, horizon: Horizon, most: int | None = None) -> int:
        """How many messages are eligible, up to `most`."""
        pending = self._pending(horizon)
        with self._looking_at_all():
            row = self._statements.row("count_pending", **pending, most=most or _ALL)
        return int(row.pending)

    def count_stored(self, since: datetime | None) -> int:
        """How many messages there are, or only those with a Due from `since` on."""
        with self._looking_at_all():
            if since is None:
                return int(self._statements.row("count_stored").stored)
            row = self._statements.row("count_stored_since", since=self._due_text(since))
            return int(row.stored)

    def _count(self, run: SweepRun, planned: Sequence[int]) -> int:
        """Count slices of an open sweep. Returns how many it had before."""
        before = self._planned.setdefault(run.sweep_id, [])
        first = len(before)
        before += planned
        self._statements.execute(
            "set_planned", sweep_id=run.sweep_id, planned=before, horizon=run.horizon.before
        )
        return first

    def claim_keys(self, plan: Slices, number: int) -> Sequence[Any]:
        """The rows of one slice of `plan.claim_keys_query`."""
        names = {"query": plan.claim_keys_query, "slice": str(number)}
        with self._patient(plan.planned[number]):
            return self._statements.named(names).rows("read_slice")

    @abstractmethod
    def _patient(self, messages: int) -> AbstractContextManager[None]:
        """While a statement is about so many messages, it may take its time."""

    @abstractmethod
    def _looking_at_all(self) -> AbstractContextManager[None]:
        """While a statement looks at all messages, due or not, it may take its time."""

    def sweeps_under_way(self) -> Sequence[UUID]:
        """The source's sweeps that nobody has closed yet."""
        rows = self._statements.rows("unsettled_sweeps", source=self.source)
        is_open = [UUID(str(row.sweep_id)) for row in rows if not (row.is_command or row.is_closed)]
        return sorted((each for each in is_open if not self._is_dead(each)), key=str)

    @retry_lost_transactions
    def open_sweep(
        self, horizon: Horizon, *, engine: str | None = None, prunes: bool = True
    ) -> SweepRun:
        """Open a sweep under a new id, alive as long as this session."""
        sweep_id = uuid.uuid4()
        self._locks.try_lock(sweep_lock(sweep_id))
        with self._statements.transaction():
            pruned = self._prune_attempts() if prunes else 0
            self._statements.execute(
                "open_sweep",
                sweep_id=sweep_id,
                source=self.source,
                horizon=horizon.before,
                engine=engine,
                attempts_changed=pruned > 0,
            )
        return SweepRun(sweep_id, horizon)

    @retry_lost_transactions
    def open_command(self, command: Command) -> SweepRun:
        """Open a command under a new id."""
        sweep_id, horizon = uuid.uuid4(), self.horizon()
        self._locks.try_lock(sweep_lock(sweep_id))
        self._statements.execute(
            "open_command",
            sweep_id=sweep_id,
            source=self.source,
            horizon=horizon.before,
            command=command.name.value,
            given_by=make_storable(command.given_by),
            given_reason=command.reason and make_storable(command.reason),
        )
        return SweepRun(sweep_id, horizon)

    @contextmanager
    def undoing(self) -> Iterator[None]:
        """Hold the source's lock for such commands."""
        name = undo_lock(self.source)
        other = f"Another command that restores, replays or discards messages of {self.source}"
        patience = Patience(_UNDO_WAIT_SECONDS)
        while not self._locks.try_lock(name):
            if not patience.wait(lambda: other):
                raise StoreError(
                    f"{other} is running, and this one has done nothing",
                    advice="try again when that one has ended",
                    transient=True,
                )
        try:
            yield
        finally:
            # The session's end releases it, too. An error here would hide why the session ended.
            with suppress(StoreError):
                self._locks.unlock(name)

    def undoing_commands(self) -> Sequence[UUID]:
        """Those that are not settled, by their names."""
        rows = self._statements.rows("read_commands", source=self.source)
        return [UUID(str(row.sweep_id)) for row in rows if CommandName(row.command).undoes]

    @retry_lost_transactions
    def stop_sweep(self, sweep_id: UUID, after_seconds: float) -> None:
        """Let an open sweep stop so many seconds from now; see `StopsSweeps`."""
        after_ms = round(after_seconds * 1_000)
        self._statements.execute("stop_sweep", sweep_id=sweep_id, after_ms=after_ms)

    def notices(self) -> Sequence[Problem]:
        """Messages that are never due, since they have no Due."""
        if not self._kind.may_lack_due:
            return ()
        timeless = self._statements.row("count_timeless").timeless
        if not timeless:
            return ()
        return (
            Problem(
                f"{timeless} messages in {self._delayed} have no {self._kind.due}, so they never "
                "come due",
                "give them one, or remove them",
            ),
        )

    def due_destinations(self, horizon: Horizon) -> Sequence[str]:
        """The destinations of the messages that have been due for the longest; none if destinations
        are in the headers.
        """
        if not self._kind.has_destination:
            return ()
        rows = self._statements.rows("due_destinations", **self._pending(horizon))
        return [row.destination for row in rows]

    def stored_destinations(self) -> Sequence[str]:
        """The destinations of all messages; none if they are in the headers."""
        if not self._kind.has_destination:
            return ()
        with self._looking_at_all():
            return [row.destination for row in self._statements.rows("stored_destinations")]

    def _pending(self, horizon: Horizon) -> dict[str, object]:
        """The values by which statements know what is eligible."""
        return {
            "source": self.source,
            "horizon": self._due_text(horizon.before),
            "since": self._due_text(horizon.since),
            "paused": self._pausing(),
        }

    def pause(self, pattern: str, until: datetime | None, given_by: str, reason: str) -> None:
        """Pause the destinations that fit a pattern; see `PausesDestinations`."""
        self._held_back.pause(pattern, self._moment(until), given_by, reason)

    def resume(self, pattern: str) -> bool:
        """End a pause; False if there is none in force."""
        return self._held_back.resume(pattern)

    def pauses(self) -> Sequence[Pause]:
        """The pauses in force."""
        return self._held_back.pauses()

    def upkeep(self) -> RelationalUpkeep:
        """The upkeep of the rows of all sources; see `ForgetsSources`."""
        return RelationalUpkeep(self._statements)

    def _moment(self, moment: datetime | None) -> object:
        """An instant as the dialect binds it."""
        return moment

    def _instant(self, due: Any) -> datetime | None:
        """A Due as the dialect returns it."""
        found: datetime | None = due
        return found

    def _pausing(self) -> str:
        """The pauses in force as JSON, in the form that statements test. A row that they do not
        fit may be paused nevertheless: its claim tells.
        """
        return json.dumps([like for pause in self.pauses() for like in self._likes(pause.pattern)])

    @abstractmethod
    def _likes(self, pattern: str) -> Sequence[object]:
        """A pattern of paused destinations, as statements test it."""

    @abstractmethod
    def _due_text(self, due: datetime | None) -> str:
        """A Due as the dialect writes it; of None, one before all others."""

    def _prune_attempts(self) -> int:
        return self._statements.execute("prune_attempts", source=self.source)

    def progress(self, sweep_id: UUID) -> tuple[int, int]:
        """Batches and messages done so far."""
        row = self._statements.row("progress", sweep_id=sweep_id)
        return row.batches, row.dispatched + row.failed


def slice_sizes(bounds: Sequence[Any]) -> tuple[int, ...]:
    """The number of messages of each slice; all slices but the last have the same. `bounds` are the
    rows of `plan_bounds`, one where each slice begins.
    """
    if not bounds:
        return ()
    total = bounds[0].total
    size = -(-total // len(bounds))
    return tuple(min(size, total - start) for start in range(0, total, size))
