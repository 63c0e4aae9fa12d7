"""What settle needs of a store's database: sweeps to close and seal, rows to read."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

from duesweep.core.change import Command, CommandName, UnsettledCommand
from duesweep.drivers.statements import retry_lost_transactions
from duesweep.errors import ConfigError, StoreError, SweepClosedError, make_storable
from duesweep.stores.journal import (
    Backlog,
    ExhaustedPiece,
    FailureReason,
    JournalBatch,
    SweepSummary,
    UnsettledSweep,
)
from duesweep.stores.relational.locks import LockingSession, settle_lock, sweep_lock
from duesweep.stores.relational.summary import Lateness, aware, planned_slices, summary_of

# About 150 MB, as rows.
_MESSAGES_PER_PIECE = 500_000
# A writer may take five times as much memory.
_BYTES_PER_PIECE = 32_000_000
_NO_LIMIT = 2**62
# A server has room for a limited number of locks, and each dead sweep takes one.
_MOST_DEAD = 100
_MOST_REASONS = 3


class RelationalJournal:
    """A session's locks show that its sweep lives, and that it settles a source. `delayed` is the
    delayed table's name in the bindings.
    """

    def __init__(self, session: LockingSession, source: str, delayed: str) -> None:
        self.source = source
        self._statements = session.statements
        self._locks = session.locks
        self._delayed = delayed
        # Dead sweeps whose locks this session has taken.
        self._kept: set[UUID] = set()
        self._is_settling = False

    def try_settling(self) -> bool:
        """Take the source's settle lock, unless another session holds it."""
        self._is_settling = self._locks.try_lock(settle_lock(self.source))
        return self._is_settling

    def end_settling(self) -> None:
        """Release the settle lock, and those of dead sweeps."""
        self._is_settling = False
        # The session's end releases them, too. An error here would hide why the session ended.
        with suppress(StoreError):
            while self._kept:
                self._locks.unlock(sweep_lock(self._kept.pop()))
            self._locks.unlock(settle_lock(self.source))

    def settler(self) -> str:
        """Which process holds the settle lock, as far as the server tells."""
        return self._locks.holder(settle_lock(self.source)) or "Another process"

    def dead_sweeps(self) -> Sequence[UnsettledSweep]:
        """Sweeps whose driver is gone; a settler holds their locks from now on."""
        dead = []
        for sweep in self._unsettled():
            if sweep.sweep_id in self._kept or self._is_dead(sweep.sweep_id):
                dead.append(sweep)
            if len(dead) == _MOST_DEAD:
                break
        return dead

    def keep_sweep(self, sweep_id: UUID) -> bool:
        """Take the sweep's lock, unless another session holds it."""
        return self._locks.try_lock(sweep_lock(sweep_id))

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
        """Wait for batches in flight, then close; False when it was closed already."""
        with self._statements.transaction():
            if not (self._await_batches if waits else self._are_batches_over)(sweep_id):
                return False
            self._statements.execute(
                "close_sweep",
                sweep_id=sweep_id,
                abandoned=abandoned,
                remaining=self._remaining(sweep_id, remaining),
                reason=reason and make_storable(reason),
            )
        return True

    def _remaining(self, sweep_id: UUID, remaining: int | Callable[[], int]) -> int:
        """What `remaining` says, which is called if a slice is not complete. Where all are, nobody
        asks what remains, and to look for it could cost as much as the plan.
        """
        if isinstance(remaining, int):
            return remaining
        ends = self._statements.rows("read_slice_ends", sweep_id=sweep_id)
        complete = {end.slice for end in ends if end.reason is None}
        planned = planned_slices(self._statements.row("read_sweep", sweep_id=sweep_id))
        return 0 if complete.issuperset(range(len(planned))) else remaining()

    @retry_lost_transactions
    def seal(self, sweep_id: UUID) -> None:
        """Note when a closed sweep was first settled."""
        self._statements.execute("seal", sweep_id=sweep_id)

    def summary(self, sweep_id: UUID) -> tuple[SweepSummary, bool]:
        """The sweep's row for `sweeps`, and whether retry counters changed."""
        rows = self._statements.rows("read_sweep", sweep_id=sweep_id)
        if not rows:
            raise SweepClosedError(
                f"Another process has settled sweep {sweep_id} of {self.source}; the ledger has it"
            )
        (row,) = rows
        totals = self._statements.rows("total_batches", sweep_id=sweep_id)
        ends = self._statements.rows("read_slice_ends", sweep_id=sweep_id)
        changed = row.attempts_changed or any(total.attempts_changed for total in totals)
        summary = summary_of(row, totals, ends, self._lateness(sweep_id))
        if summary.failed or summary.exhausted:
            summary = replace(summary, failures=self._failure_reasons(sweep_id))
        return summary, bool(changed)

    def batches(self, sweep_id: UUID) -> Iterator[Sequence[JournalBatch]]:
        """What the sweep delivered, in pieces."""
        after_id = 0
        while rows := self._statements.rows(
            "read_batches", sweep_id=sweep_id, after_id=after_id, messages=_MESSAGES_PER_PIECE
        ):
            yield [JournalBatch(sweep_id, bytes(row.outcomes)) for row in rows]
            after_id = rows[-1].id

    def exhausted(self, sweep_id: UUID) -> Sequence[ExhaustedPiece]:
        """What the sweep exhausted, in pieces."""
        # Versions that noted no engine did not cut, and may have written a part of this sweep.
        is_cut = self._statements.row("read_sweep", sweep_id=sweep_id).engine is not None
        rows = self._statements.rows(
            "exhausted_pieces",
            sweep_id=sweep_id,
            piece_bytes=_BYTES_PER_PIECE if is_cut else _NO_LIMIT,
        )
        return [ExhaustedPiece(*(int(value) for value in row)) for row in rows]

    def exhausted_query(self, sweep_id: UUID, piece: ExhaustedPiece) -> str:
        """The messages of a piece, for JDBC."""
        first, last = str(piece.first_id), str(piece.last_id)
        return self._statements.query(
            "read_exhausted", sweep_id=str(sweep_id), first_id=first, last_id=last
        )

    def retries_query(self) -> str:
        """The source's retry counters, for JDBC."""
        return self._statements.query("read_retries", source=self.source)

    def exhausted_rows(self, sweep_id: UUID, piece: ExhaustedPiece) -> Sequence[Any]:
        """The messages of a piece."""
        query = self.exhausted_query(sweep_id, piece)
        return next(self._pages(query, "id", 0, piece.rows), ())

    def command(self, sweep_id: UUID) -> UnsettledCommand | None:
        """What the command is; None: it is a sweep."""
        rows = self._statements.rows("read_command", sweep_id=sweep_id)
        if not rows:
            return None
        (row,) = rows
        command = Command(CommandName(row.command), row.given_by, row.given_reason)
        return UnsettledCommand(command, bool(row.attempts_changed))

    def changes(self, sweep_id: UUID) -> Sequence[ExhaustedPiece]:
        """What the command changed, in pieces."""
        rows = self._statements.rows(
            "changes_pieces", sweep_id=sweep_id, piece_bytes=_BYTES_PER_PIECE
        )
        return [ExhaustedPiece(*(int(value) for value in row)) for row in rows]

    def changes_query(self, sweep_id: UUID, piece: ExhaustedPiece) -> str:
        """The changes of a piece, for JDBC."""
        first, last = str(piece.first_id), str(piece.last_id)
        return self._statements.query(
            "read_changes", sweep_id=str(sweep_id), first_id=first, last_id=last
        )

    def changes_rows(self, sweep_id: UUID, piece: ExhaustedPiece) -> Sequence[Any]:
        """The changes of a piece."""
        return next(self._pages(self.changes_query(sweep_id, piece), "id", 0, piece.rows), ())

    def retries_rows(self, most: int) -> Iterator[Sequence[Any]]:
        """The source's retry counters, `most` at a time."""
        return self._pages(self.retries_query(), "message_key", "", most)

    @retry_lost_transactions
    def delete_settled(self, sweep_id: UUID) -> None:
        """Forget the sweep."""
        with self._statements.transaction():
            # A bounded number at a time: each statement has its time-out.
            for rows in ("delete_settled", "delete_changes"):
                while self._statements.execute(rows, sweep_id=sweep_id):
                    pass
            self._statements.execute("delete_sweep", sweep_id=sweep_id)
        if sweep_id in self._kept:
            self._kept.remove(sweep_id)
            with suppress(StoreError):
                self._locks.unlock(sweep_lock(sweep_id))

    def binding(self) -> UUID | None:
        """The ledger that the source is bound to; `ConfigError` if it is another store's source."""
        rows = self._statements.rows("read_binding", source=self.source)
        if rows and rows[0].delayed != self._delayed:
            raise ConfigError(
                f"The source {self.source} is {rows[0].delayed}, and cannot be {self._delayed} too",
                advice="set another store.name",
            )
        return UUID(str(rows[0].ledger_id)) if rows else None

    @retry_lost_transactions
    def bind(self, ledger_id: UUID) -> None:
        """Bind the source for good, unless somebody else has."""
        self._statements.execute(
            "bind", source=self.source, delayed=self._delayed, ledger_id=ledger_id
        )

    def unsettled(self) -> Backlog:
        """How much the journal holds of the source."""
        row = self._statements.row("measure_unsettled", source=self.source)
        return Backlog(row.messages, row.bytes, row.sweeps)

    def _pages(self, query: str, key: str, first: object, most: int) -> Iterator[Sequence[Any]]:
        """The rows of a query in the order of `key`, a unique column; `first` sorts before all."""
        statements, after = self._statements.named({"query": query, "key": key}), first
        while rows := statements.rows("read_page", after=after, most=most):
            yield rows
            after = getattr(rows[-1], key)

    def _are_batches_over(self, sweep_id: UUID) -> bool:
        return bool(self._statements.rows("are_batches_over", sweep_id=sweep_id))

    def _await_batches(self, sweep_id: UUID) -> bool:
        return bool(self._statements.rows("await_batches", sweep_id=sweep_id))

    def _lateness(self, sweep_id: UUID) -> Lateness:
        row = self._statements.row("lateness", sweep_id=sweep_id)
        return Lateness(row.p50, row.p95, row.longest)

    def _failure_reasons(self, sweep_id: UUID) -> tuple[FailureReason, ...]:
        rows = self._statements.rows("failure_reasons", sweep_id=sweep_id, most=_MOST_REASONS)
        return tuple(FailureReason(row.reason, row.messages, row.destination) for row in rows)

    def _unsettled(self) -> Iterator[UnsettledSweep]:
        for row in self._statements.rows("unsettled_sweeps", source=self.source):
            sealed_at = aware(row.sealed_at) if row.sealed_at else None
            yield UnsettledSweep(UUID(str(row.sweep_id)), bool(row.is_closed), sealed_at)

    def _is_dead(self, sweep_id: UUID) -> bool:
        if not self._locks.try_lock(sweep_lock(sweep_id)):
            return False
        if self._is_settling:
            self._kept.add(sweep_id)
        else:
            self._locks.unlock(sweep_lock(sweep_id))
        return True
