"""Sweeps and commands, from open to forgotten, and the rows next to the messages of a source:
its binding to a ledger, pauses, retry counters.

A session's lock shows that its sweep lives; another one makes it the settler of its source.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

from duesweep.core.account import FailureReason, SweepSummary
from duesweep.core.change import Command, CommandName, UnsettledCommand
from duesweep.core.errors import (
    ConfigError,
    RefusedStatementError,
    StoreError,
    SweepClosedError,
    make_storable,
)
from duesweep.core.policy import Pause
from duesweep.core.world import Patience
from duesweep.drivers.statements import Session, retry_lost_transactions
from duesweep.stores.base import (
    Backlog,
    DroppedSource,
    Horizon,
    JournalAge,
    Piece,
    SweepRun,
    Unsettled,
)
from duesweep.stores.dialect import Location, journal_tables, sweep_lock
from duesweep.stores.summary import aware, planned_slices, summary_of
from duesweep.stores.tables import AGE_COLUMNS

# About 150 MB, as rows.
_MESSAGES_PER_PIECE = 500_000
# A writer may take five times as much memory.
_BYTES_PER_PIECE = 32_000_000
_MOST_REASONS = 3
_UNDO_WAIT_SECONDS = 5.0
# The ledger of a source that was freed from its own.
_FREED = UUID(int=0)
# The binding is the last: as long as it is there, the source is known as one to forget.
_ROWS_OF_A_SOURCE = ("forget_attempts", "forget_pauses", "forget_limits", "unbind")


class SqlJournal:
    """A driver's session on a relational store: the journal of its source."""

    def __init__(self, session: Session, location: Location) -> None:
        self.source = location.source
        self._dialect = location.dialect
        self._location = location
        self._delayed = location.find_delayed(session)
        self._session = session.named(location.names(self._delayed))
        # Dead sweeps whose locks this session has taken.
        self._kept: set[UUID] = set()
        self._is_settling = False
        self._zone: str | None = None
        self._has_age: bool | None = None

    def __exit__(self, *error: object) -> None:
        self._session.__exit__(*error)

    def horizon(self) -> Horizon:
        return self._dialect.horizon(self._session, self._writers_zone())

    def _writers_zone(self) -> str | None:
        if self._zone is None:
            self._zone = self._dialect.zone(self._session, self._location)
        return self._zone

    # Who may settle, and which sweeps are dead.

    def try_settling(self) -> bool:
        self._is_settling = self._try_lock(settle_lock(self.source))
        return self._is_settling

    def end_settling(self) -> None:
        """Release the settle lock, and the locks of dead sweeps."""
        self._is_settling = False
        # The session's end also releases them. An error here would hide why the session ended.
        with suppress(StoreError):
            while self._kept:
                self._unlock(sweep_lock(self._kept.pop()))
            self._unlock(settle_lock(self.source))

    def settler(self) -> str:
        """Which process holds the settle lock, as far as the server tells."""
        return self._dialect.holder(self._session, settle_lock(self.source)) or "Another process"

    def unsettled(self) -> Sequence[Unsettled]:
        return [
            Unsettled(
                UUID(str(row.sweep_id)),
                aware(row.started_at),
                bool(row.is_closed),
                aware(row.sealed_at) if row.sealed_at else None,
                CommandName(row.command) if row.command else None,
            )
            for row in self._session.rows("unsettled_sweeps", source=self.source)
        ]

    def still_alive(self, sweep_id: UUID) -> bool:
        """Whether another session has the sweep's lock. A settler keeps the lock of a dead one."""
        if sweep_id in self._kept:
            return False
        if not self._try_lock(sweep_lock(sweep_id)):
            return True
        if self._is_settling:
            self._kept.add(sweep_id)
        else:
            self._unlock(sweep_lock(sweep_id))
        return False

    def keep_sweep(self, sweep_id: UUID) -> bool:
        """Take the sweep's lock, unless another session holds it."""
        return self._try_lock(sweep_lock(sweep_id))

    # Open, stop, close.

    @retry_lost_transactions
    def open_sweep(self, horizon: Horizon, *, engine: str | None = None) -> SweepRun:
        sweep_id = self._location.world.new_id()
        self._try_lock(sweep_lock(sweep_id))
        with self._session.transaction():
            pruned = self._dialect.prune_attempts(self._session, self.source)
            took = self._session.execute(
                "open_sweep",
                sweep_id=sweep_id,
                source=self.source,
                horizon=horizon.before,
                engine=engine,
                attempts_changed=pruned > 0,
            )
            refuse_dropped(took, self.source)
        return SweepRun(sweep_id, horizon)

    @retry_lost_transactions
    def open_command(self, command: Command) -> SweepRun:
        sweep_id, horizon = self._location.world.new_id(), self.horizon()
        self._try_lock(sweep_lock(sweep_id))
        took = self._session.execute(
            "open_command",
            sweep_id=sweep_id,
            source=self.source,
            horizon=horizon.before,
            command=command.name.value,
            given_by=make_storable(command.given_by),
            given_reason=command.reason and make_storable(command.reason),
        )
        refuse_dropped(took, self.source)
        return SweepRun(sweep_id, horizon)

    @contextmanager
    def undoing(self) -> Iterator[None]:
        name = undo_lock(self.source)
        other = f"Another command that restores, replays or discards messages of {self.source}"
        patience = Patience(_UNDO_WAIT_SECONDS, clock=self._location.world.clock)
        while not self._try_lock(name):
            if not patience.wait(lambda: other):
                raise StoreError(
                    f"{other} is running, and this one has done nothing",
                    advice="try again when that one has ended",
                    transient=True,
                )
        try:
            yield
        finally:
            # The session's end also releases it. An error here would hide why the session ended.
            with suppress(StoreError):
                self._unlock(name)

    @retry_lost_transactions
    def stop_sweep(self, sweep_id: UUID, after_seconds: float) -> None:
        after_ms = round(after_seconds * 1_000)
        self._session.execute("stop_sweep", sweep_id=sweep_id, after_ms=after_ms)

    def progress(self, sweep_id: UUID) -> tuple[int, int]:
        row = self._session.row("progress", sweep_id=sweep_id)
        return row.batches, row.dispatched + row.failed

    @retry_lost_transactions
    def close_sweep(
        self,
        sweep_id: UUID,
        *,
        abandoned: bool,
        remaining: int | Callable[[], int],
        reason: str | None = None,
        waits: bool = True,
    ) -> bool:
        with self._session.transaction():
            if not self._dialect.await_batches(self._session, self.source, sweep_id, waits=waits):
                return False
            self._session.execute(
                "close_sweep",
                sweep_id=sweep_id,
                abandoned=abandoned,
                remaining=self._remaining(sweep_id, remaining),
                reason=reason and make_storable(reason),
            )
        return True

    def _remaining(self, sweep_id: UUID, remaining: int | Callable[[], int]) -> int:
        """The result of `remaining`, which is called if a slice is not complete. If all are, it is
        not called: to look could cost as much as the plan.
        """
        if isinstance(remaining, int):
            return remaining
        ends = self._session.rows("read_slice_ends", sweep_id=sweep_id)
        complete = {end.slice for end in ends if end.reason is None}
        planned = planned_slices(self._session.row("read_sweep", sweep_id=sweep_id))
        return 0 if complete.issuperset(range(len(planned))) else remaining()

    # Settle: the ledger's rows; always the same pieces.

    @retry_lost_transactions
    def seal(self, sweep_id: UUID) -> None:
        self._session.execute("seal", sweep_id=sweep_id)

    def summary(self, sweep_id: UUID) -> tuple[SweepSummary, bool]:
        _, messages = self.progress(sweep_id)
        with self._patient(messages):
            return self._summary(sweep_id)

    def _summary(self, sweep_id: UUID) -> tuple[SweepSummary, bool]:
        rows = self._session.rows("read_sweep", sweep_id=sweep_id)
        if not rows:
            raise SweepClosedError(
                f"Another process has settled sweep {sweep_id} of {self.source}; the ledger has it"
            )
        (row,) = rows
        totals = self._session.rows("total_batches", sweep_id=sweep_id)
        ends = self._session.rows("read_slice_ends", sweep_id=sweep_id)
        changed = row.attempts_changed or any(total.attempts_changed for total in totals)
        lateness = self._dialect.lateness(self._session, sweep_id)
        summary = summary_of(row, totals, ends, lateness)
        if summary.failed or summary.exhausted:
            summary = replace(summary, failures=self._failure_reasons(sweep_id))
        return summary, bool(changed)

    def batches(self, sweep_id: UUID) -> Iterator[Sequence[bytes]]:
        after_id = 0
        while rows := self._session.rows(
            "read_batches", sweep_id=sweep_id, after_id=after_id, messages=_MESSAGES_PER_PIECE
        ):
            yield [bytes(row.outcomes) for row in rows]
            after_id = rows[-1].id

    def pieces(self, sweep_id: UUID, *, command: bool) -> Sequence[Piece]:
        name = "changes_pieces" if command else "exhausted_pieces"
        rows = self._session.rows(name, sweep_id=sweep_id, piece_bytes=_BYTES_PER_PIECE)
        return [
            Piece(sweep_id, command, int(row.first_id), int(row.last_id), int(row.rows))
            for row in rows
        ]

    def piece_rows(self, piece: Piece) -> Sequence[Any]:
        query = self._session.query(
            "read_changes" if piece.command else "read_exhausted",
            sweep_id=str(piece.sweep_id),
            first_id=str(piece.first_id),
            last_id=str(piece.last_id),
        )
        return next(self._pages(query, "id", 0, piece.rows), ())

    def command(self, sweep_id: UUID) -> UnsettledCommand | None:
        rows = self._session.rows("read_command", sweep_id=sweep_id)
        if not rows:
            return None
        (row,) = rows
        command = Command(CommandName(row.command), row.given_by, row.given_reason)
        return UnsettledCommand(command, bool(row.attempts_changed))

    def retries_rows(self, most: int) -> Iterator[Sequence[Any]]:
        query = self._session.query("read_retries", source=self.source)
        return self._pages(query, "message_key", "", most)

    @retry_lost_transactions
    def delete_settled(self, sweep_id: UUID) -> None:
        with self._session.transaction():
            if self._keeps_age:
                self._session.execute("note_settled", sweep_id=sweep_id)
            # A bounded number at a time: each statement has its time-out.
            for rows in ("delete_settled", "delete_changes"):
                while self._session.execute(rows, sweep_id=sweep_id):
                    pass
            self._session.execute("delete_sweep", sweep_id=sweep_id)
        if sweep_id in self._kept:
            self._kept.remove(sweep_id)
            with suppress(StoreError):
                self._unlock(sweep_lock(sweep_id))

    # The rows of a source.

    def binding(self) -> UUID | None:
        delayed = self._delayed.sql
        rows = self._session.rows("read_binding", source=self.source)
        if rows and rows[0].delayed != delayed:
            raise ConfigError(
                f"The source {self.source} is {rows[0].delayed}, and cannot be {delayed} too",
                advice="set another store.name",
            )
        ledger_id = UUID(str(rows[0].ledger_id)) if rows else _FREED
        return None if ledger_id == _FREED else ledger_id

    def age(self) -> JournalAge | None:
        if not self._keeps_age:
            return None
        freed = self._session.rows("read_binding", source=self.source)
        is_freed = bool(freed) and UUID(str(freed[0].ledger_id)) == _FREED
        for row in self._session.rows("read_age", source=self.source):
            return JournalAge(
                _uuid(row.journal_id) or self._own_id(),
                _uuid(row.settled_sweep),
                None if row.settled_at is None else aware(row.settled_at),
                is_freed,
                row.place,
            )
        return JournalAge(self._own_id(), None, None)

    def _own_id(self) -> UUID:
        """The id of a journal that has none yet. One that is created again in its database gets the
        same; afterwards it is a row of the journal, and goes wherever the database goes.
        """
        try:
            identity = self._session.row("server_identity").identity
        except StoreError as error:
            if error.transient:
                raise
            # Some managed servers do not tell it.
            bound = self._session.rows("read_binding", source=self.source)
            identity = bound[0].bound_at if bound else None
        return uuid5(_FREED, f"{identity}/{self.source}")

    @retry_lost_transactions
    def name_journal(self) -> None:
        if self._keeps_age:
            own_id = self._own_id()
            self._session.execute("name_journal", source=self.source, journal_id=own_id)

    @retry_lost_transactions
    def keep_place(self, place: str) -> None:
        if self._keeps_age:
            self._session.execute("keep_place", source=self.source, place=place)

    @property
    def _keeps_age(self) -> bool:
        """Whether the table of bindings has the columns for it, which older versions did not
        create; asked once.
        """
        if self._has_age is None:
            bindings = journal_tables(self._delayed)["bindings"]
            columns = self._dialect.tables.columns(self._session, [bindings]).get(bindings, ())
            self._has_age = set(AGE_COLUMNS) <= set(columns)
        return self._has_age

    @retry_lost_transactions
    def bind(self, ledger_id: UUID) -> None:
        self._session.execute(
            "bind",
            source=self.source,
            delayed=self._delayed.sql,
            ledger_id=ledger_id,
        )

    def backlog(self) -> Backlog:
        row = self._session.row("measure_unsettled", source=self.source)
        return Backlog(row.messages, row.bytes, row.sweeps)

    @retry_lost_transactions
    def pause(self, pattern: str, until: datetime | None, given_by: str, reason: str) -> None:
        values = {"until": self._dialect.moment(until), "given_by": given_by, "reason": reason}
        with self._session.transaction():
            self._session.execute("drop_old_pauses", source=self.source)
            self._session.execute("pause", source=self.source, pattern=pattern, **values)

    @retry_lost_transactions
    def resume(self, pattern: str) -> bool:
        with self._session.transaction():
            self._session.execute("drop_old_pauses", source=self.source)
            return bool(self._session.execute("resume", source=self.source, pattern=pattern))

    def pauses(self) -> Sequence[Pause]:
        return read_pauses(self._session, self.source)

    def dropped(self) -> Sequence[DroppedSource]:
        rows = self._session.rows("dropped_sources")
        return [DroppedSource(row.source, row.delayed, int(row.unsettled)) for row in rows]

    @retry_lost_transactions
    def forget(self, source: str) -> int:
        total = 0
        with self._session.transaction():
            for name in _ROWS_OF_A_SOURCE:
                while some := self._session.execute(name, source=source):
                    total += some
        return total

    def gone_counters(self, most: int) -> Sequence[str]:
        with self._looking_at_all():
            rows = self._session.rows("gone_counters", source=self.source, most=most)
        return [row.message_key for row in rows]

    def orphaned_journal(self) -> Sequence[UUID]:
        with self._looking_at_all():
            rows = self._session.rows("orphaned_journal")
        return [UUID(str(row.sweep_id)) for row in rows]

    def _patient(self, messages: int) -> AbstractContextManager[None]:
        """While a statement is about this many messages, it may take its time."""
        return self._session.wait_longer(self._location.timeouts.plan_seconds(messages))

    def _looking_at_all(self) -> AbstractContextManager[None]:
        """While a statement looks at all messages, due or not, it may take its time."""
        return self._patient(self._estimated_rows())

    def _estimated_rows(self) -> int:
        return self._dialect.tables.estimate_rows(self._session, self._delayed)

    def _pages(self, query: str, key: str, first: object, most: int) -> Iterator[Sequence[Any]]:
        """The rows of a query in the order of `key`, a unique column; `first` sorts before all."""
        statements, after = self._session.named({"query": query, "key": key}), first
        while rows := statements.rows("read_page", after=after, most=most):
            yield rows
            after = getattr(rows[-1], key)

    def _failure_reasons(self, sweep_id: UUID) -> tuple[FailureReason, ...]:
        rows = self._session.rows("failure_reasons", sweep_id=sweep_id, most=_MOST_REASONS)
        return tuple(FailureReason(row.reason, row.messages, row.destination) for row in rows)

    def _try_lock(self, name: str) -> bool:
        """Whether this session now holds the lock; never waits. The session's end releases it."""
        return bool(self._session.row("try_lock", **self._dialect.lock(name)).locked)

    def _unlock(self, name: str) -> None:
        self._session.execute("unlock", **self._dialect.lock(name))


def refuse_dropped(took: int, source: str) -> None:
    """Raise `StoreError` if the journal took no row, and raised no error."""
    if took == 0:
        raise RefusedStatementError(
            f"The journal of {source} did not take a row, and the server raised no error",
            advice="look for a trigger or a rule on the tables duesweep_… that drops rows",
        )


def _uuid(value: object) -> UUID | None:
    return None if value is None else UUID(str(value))


def read_pauses(statements: Session, source: str) -> Sequence[Pause]:
    """The pauses of a source in force, by the server's clock."""
    return [
        Pause(
            row.pattern,
            aware(row.paused_at),
            None if row.until_at is None else aware(row.until_at),
            row.given_by,
            row.reason,
        )
        for row in statements.rows("read_pauses", source=source)
    ]


def settle_lock(source: str) -> str:
    """The lock of a source's settler. Hashed, because the name of a lock has to be short."""
    return f"duesweep/settle/{_hashed(source)}"


def undo_lock(source: str) -> str:
    """The lock of the one command of a source that acts on rows of the ledger."""
    return f"duesweep/undo/{_hashed(source)}"


def _hashed(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()
