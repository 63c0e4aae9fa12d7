"""The journal of a relational store, as settle reads it; always the same pieces."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

from duesweep.core.account import FailureReason, SweepSummary
from duesweep.core.change import Command, CommandName, UnsettledCommand
from duesweep.core.errors import StoreError, SweepClosedError
from duesweep.drivers.statements import Session, retry_lost_transactions
from duesweep.stores.journal import Backlog, Journal, Piece, Unsettled
from duesweep.stores.leases import is_alive, settler_lease, sweep_lease
from duesweep.stores.sql_connection import SqlConnection, SqlPart
from duesweep.stores.summary import aware, summary_of

# About 150 MB, as rows.
_MESSAGES_PER_PIECE = 500_000
# A writer may take five times as much memory.
_BYTES_PER_PIECE = 32_000_000
_MOST_REASONS = 3
# `delete_settled` and `delete_changes` delete no fewer rows than this, unless these are the last.
FEWEST_AT_ONCE = 500


class SqlJournal(SqlPart, Journal):
    """The sweeps and commands of the source that are not forgotten."""

    def __init__(self, at: SqlConnection) -> None:
        super().__init__(at)
        # Dead sweeps whose leases this session has taken.
        self._kept: set[UUID] = set()

    # Who may settle, and which sweeps are dead.

    @contextmanager
    def settling(self) -> Iterator[str | None]:
        """The block's end also gives back the leases of dead sweeps."""
        leases, name = self._at.leases, settler_lease(self.source)
        if not leases.take(name):
            # As a sentence's beginning.
            told = "Another process"
            if (other := leases.holder(name)) is not None:
                since = f"{other.taken_at:%F %T} UTC"
                told = f"Process {other.process}, with the lease since {since},"
            yield told
            return
        try:
            yield None
        finally:
            # They end by themselves. An error here would hide why the session ended.
            with suppress(StoreError):
                while self._kept:
                    leases.give_back(sweep_lease(self._kept.pop()))
                leases.give_back(name)

    def unsettled(self) -> Sequence[Unsettled]:
        """A sweep lives as long as a session has its lease."""
        return [
            Unsettled(
                UUID(str(row.sweep_id)),
                aware(row.started_at),
                bool(row.is_closed),
                is_alive(row),
                aware(row.sealed_at) if row.sealed_at else None,
                CommandName(row.command) if row.command else None,
            )
            for row in self._session.rows("unsettled_sweeps", source=self.source)
        ]

    def adopt(self, sweep_id: UUID) -> bool:
        """A settler keeps the lease of a dead sweep."""
        if sweep_id not in self._kept:
            if not self._at.leases.take(sweep_lease(sweep_id)):
                return False
            self._kept.add(sweep_id)
        return True

    # Settle.

    @retry_lost_transactions
    def seal(self, sweep_id: UUID) -> None:
        self._session.execute("seal", sweep_id=sweep_id)

    def summary(self, sweep_id: UUID) -> tuple[SweepSummary, bool]:
        _, messages = read_progress(self._session, sweep_id)
        with self._at.patient(messages):
            of_sweep = {"sweep_id": sweep_id}
            rows, totals, ends = self._session.rows_of_each(
                ("read_sweep", of_sweep, {}),
                ("total_batches", of_sweep, {}),
                ("read_slice_ends", of_sweep, {}),
                what="read_sweep",
            )
            if not rows:
                raise SweepClosedError(
                    f"Another process has settled sweep {sweep_id} of {self.source}; the ledger "
                    "has it"
                )
            (row,) = rows
            changed = row.attempts_changed or any(total.attempts_changed for total in totals)
            lateness = self._dialect.lateness(self._session, sweep_id)
            summary = summary_of(row, totals, ends, lateness)
            if summary.failed or summary.exhausted:
                found = self._session.rows("failure_reasons", sweep_id=sweep_id, most=_MOST_REASONS)
                failures = (
                    FailureReason(one.reason, one.messages, one.destination) for one in found
                )
                summary = replace(summary, failures=tuple(failures))
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
        return [Piece(sweep_id, command, int(row.first_id), int(row.last_id)) for row in rows]

    def piece_rows(self, piece: Piece) -> Sequence[Any]:
        return self._session.rows(
            "read_changes" if piece.command else "read_exhausted",
            sweep_id=piece.sweep_id,
            first_id=piece.first_id,
            last_id=piece.last_id,
        )

    def command(self, sweep_id: UUID) -> UnsettledCommand | None:
        rows = self._session.rows("read_command", sweep_id=sweep_id)
        if not rows:
            return None
        (row,) = rows
        command = Command(CommandName(row.command), row.given_by, row.given_reason)
        return UnsettledCommand(command, bool(row.attempts_changed))

    def retries_rows(self, most: int) -> Iterator[Sequence[Any]]:
        after: str | None = None
        while rows := self._session.rows(
            "read_retries", source=self.source, after=after, most=most
        ):
            yield rows
            after = rows[-1].message_key

    @retry_lost_transactions
    def delete_settled(self, sweep_id: UUID, *, is_in_ledger: bool = True) -> None:
        with self._session.transaction():
            if is_in_ledger:
                self._session.execute("note_settled", sweep_id=sweep_id)
            # A bounded number at a time: each statement has its time-out.
            for rows in ("delete_settled", "delete_changes"):
                while self._session.execute(rows, sweep_id=sweep_id) >= FEWEST_AT_ONCE:
                    pass
            lease = sweep_lease(sweep_id)
            self._session.execute("delete_sweep", sweep_id=sweep_id, lease=lease)
        self._kept.discard(sweep_id)
        self._at.leases.forget(lease)

    def backlog(self) -> Backlog:
        row = self._session.row("measure_unsettled", source=self.source)
        return Backlog(row.messages, row.bytes, row.sweeps)


def read_progress(session: Session, sweep_id: UUID) -> tuple[int, int]:
    """Batches and messages done so far."""
    row = session.row("progress", sweep_id=sweep_id)
    return row.batches, row.dispatched + row.failed
