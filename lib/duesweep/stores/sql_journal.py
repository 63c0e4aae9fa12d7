"""The journal of a relational store, as settle reads it; always the same pieces.

A session's lock shows that its sweep lives; another one makes it the settler of its source.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

from duesweep.core.account import FailureReason, SweepSummary
from duesweep.core.change import Command, CommandName, UnsettledCommand
from duesweep.core.errors import StoreError, SweepClosedError
from duesweep.drivers.statements import retry_lost_transactions
from duesweep.stores.dialect import sweep_lock
from duesweep.stores.journal import Backlog, Journal, Piece, Unsettled
from duesweep.stores.sql_connection import SqlConnection, SqlPart
from duesweep.stores.sql_sweeps import read_progress
from duesweep.stores.summary import aware, summary_of

# About 150 MB, as rows.
_MESSAGES_PER_PIECE = 500_000
# A writer may take five times as much memory.
_BYTES_PER_PIECE = 32_000_000
_MOST_REASONS = 3


class SqlJournal(SqlPart, Journal):
    """The sweeps and commands of the source that are not forgotten."""

    def __init__(self, at: SqlConnection) -> None:
        super().__init__(at)
        # Dead sweeps whose locks this session has taken.
        self._kept: set[UUID] = set()
        self._is_settling = False

    # Who may settle, and which sweeps are dead.

    @contextmanager
    def settling(self) -> Iterator[str | None]:
        """The block's end also releases the locks of dead sweeps."""
        name = settle_lock(self.source)
        if not self._at.try_lock(name):
            yield self._settler(name)
            return
        self._is_settling = True
        try:
            yield None
        finally:
            self._is_settling = False
            # The session's end also releases them. An error here would hide why the session ended.
            with suppress(StoreError):
                while self._kept:
                    self._at.unlock(sweep_lock(self._kept.pop()))
                self._at.unlock(name)

    def _settler(self, lock: str) -> str:
        """Who holds a lock, as a sentence's beginning."""
        for row in self._session.rows("lock_holder", lock=lock):
            named = f"Process {row.process}" if row.process else "Another process"
            return f"{named}, whose session has been idle since {row.idle_since:%F %T} UTC,"
        return "Another process"

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
        if not self._at.try_lock(sweep_lock(sweep_id)):
            return True
        if self._is_settling:
            self._kept.add(sweep_id)
        else:
            self._at.unlock(sweep_lock(sweep_id))
        return False

    # Settle.

    @retry_lost_transactions
    def seal(self, sweep_id: UUID) -> None:
        self._session.execute("seal", sweep_id=sweep_id)

    def summary(self, sweep_id: UUID) -> tuple[SweepSummary, bool]:
        _, messages = read_progress(self._session, sweep_id)
        with self._at.patient(messages):
            rows = self._session.rows("read_sweep", sweep_id=sweep_id)
            if not rows:
                raise SweepClosedError(
                    f"Another process has settled sweep {sweep_id} of {self.source}; the ledger "
                    "has it"
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

    def _failure_reasons(self, sweep_id: UUID) -> tuple[FailureReason, ...]:
        rows = self._session.rows("failure_reasons", sweep_id=sweep_id, most=_MOST_REASONS)
        return tuple(FailureReason(row.reason, row.messages, row.destination) for row in rows)

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
        return next(self._at.pages(query, "id", 0, piece.rows), ())

    def command(self, sweep_id: UUID) -> UnsettledCommand | None:
        rows = self._session.rows("read_command", sweep_id=sweep_id)
        if not rows:
            return None
        (row,) = rows
        command = Command(CommandName(row.command), row.given_by, row.given_reason)
        return UnsettledCommand(command, bool(row.attempts_changed))

    def retries_rows(self, most: int) -> Iterator[Sequence[Any]]:
        query = self._session.query("read_retries", source=self.source)
        return self._at.pages(query, "message_key", "", most)

    @retry_lost_transactions
    def delete_settled(self, sweep_id: UUID, *, is_in_ledger: bool = True) -> None:
        with self._session.transaction():
            if self._at.keeps_age and is_in_ledger:
                self._session.execute("note_settled", sweep_id=sweep_id)
            # A bounded number at a time: each statement has its time-out.
            for rows in ("delete_settled", "delete_changes"):
                while self._session.execute(rows, sweep_id=sweep_id):
                    pass
            self._session.execute("delete_sweep", sweep_id=sweep_id)
        if sweep_id in self._kept:
            self._kept.remove(sweep_id)
            with suppress(StoreError):
                self._at.unlock(sweep_lock(sweep_id))

    def backlog(self) -> Backlog:
        row = self._session.row("measure_unsettled", source=self.source)
        return Backlog(row.messages, row.bytes, row.sweeps)


def settle_lock(source: str) -> str:
    """The lock of a source's settler. Hashed, because the name of a lock has to be short."""
    return f"duesweep/settle/{hashed(source)}"


def hashed(source: str) -> str:
    """A short text for the name of a source."""
    return hashlib.sha256(source.encode()).hexdigest()
