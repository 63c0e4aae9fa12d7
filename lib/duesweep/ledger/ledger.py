"""The ledger: which tables it has, whose they are, and the writing of sweeps and commands, once."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from duesweep.core.change import CommandName, UnsettledCommand
from duesweep.core.format import FORMAT_MARK
from duesweep.core.patience import NO_PATIENCE, Patience
from duesweep.errors import LedgerError
from duesweep.ledger import locations
from duesweep.ledger.base import AppTransaction, LedgerTables, Rows, SweepRows
from duesweep.ledger.identity import (
    CHANGES,
    CHANGES_PROPERTY,
    FORMAT_PROPERTY,
    ID_PROPERTY,
    ROLE_PROPERTY,
    TABLES,
    Identity,
    identify,
    kept_from,
    kept_from_property,
    requires_changes,
)
from duesweep.ledger.reading import Condition, LedgerRow
from duesweep.stores.journal import ExhaustedPiece, Journal, SweepSummary
from duesweep.stores.steering import CommandJournal

TRANSACTION_RETENTION_DAYS = 90
# Longer than settle relies on, since two clocks are compared.
_RETENTION = f"interval {TRANSACTION_RETENTION_DAYS + 10} days"
# Statistics only of columns by which a reader can skip files. For random ids they only cost time.
_STATISTICS = "delta.dataSkippingStatsColumns"
_SKIPPED_BY = "sweep_id,source,due,dispatched_at"


class _Piece(NamedTuple):
    """Rows for one table, which it takes once; `replaces`: instead of those it has of a source."""

    table: str
    rows: Rows
    transaction: AppTransaction
    replaces: str | None = None


@dataclass(frozen=True, slots=True)
class Ledger:
    """The tables under one root, as one of the writers reaches them."""

    tables: LedgerTables

    @property
    def root(self) -> str:
        """A path (with a `/` or a scheme) or a catalog schema."""
        return self.tables.root

    def read(self) -> Identity:
        """Find out which ledger is under the root.

        Raises `ConfigError` for an unsafe root and for tables of something else, `LedgerError`
        where the root cannot be read.
        """
        # In parallel: each read mostly waits for a log.
        with ThreadPoolExecutor(len(TABLES)) as pool:
            found = list(pool.map(self.tables.facts, TABLES))
        if any(map(requires_changes, found)):
            found.append(self.tables.facts(CHANGES))
        return identify(found)

    def create(self, patience: Patience = NO_PATIENCE) -> UUID:
        """Create the tables that are missing. Returns the ledger's id, which another process
        may have created at the same time. If this dies halfway, the next call completes it.
        """
        self.check_writable()
        with self.lock_for_writing(patience):
            first, *others = TABLES
            identity = self._read_creatable()
            if first in identity.missing:
                self._create(first, identity.ledger_id or uuid.uuid4())
                identity = self._read_creatable()
            if identity.ledger_id is None:
                raise LedgerError(
                    f"The ledger at {self.root} was created, but cannot be found there",
                    advice="check that all processes see the same ledger.root",
                    transient=False,
                )
            for name in (*others, CHANGES):
                if name in identity.missing:
                    self._create(name, identity.ledger_id)
        return identity.ledger_id

    def _require_changes(self) -> None:
        """Create the table `changes`, unless the ledger has it. The caller holds the lock."""
        identity = self.read()
        if identity.has_changes:
            return
        there = self.tables.facts(CHANGES)
        # Data of others, or another ledger's table: the ledger must not take it over.
        identify([self.tables.facts(TABLES[0]), there]).refuse_stray()
        if there.properties is None:
            self._create(CHANGES, identity.ledger_id)
        # Last: if this dies before, the next one finds the table and goes on here.
        self.tables.set_properties(TABLES[0], {CHANGES_PROPERTY: "true"})

    def mark(self, identity: Identity, patience: Patience) -> None:
        """Give the ledger's id to tables of older versions, which gave it to `tombstones` only."""
        with self.lock_for_writing(patience):
            for name in identity.unmarked:
                self.tables.set_properties(name, _id_properties(name, identity.ledger_id))

    def kept_from(self, source: str) -> datetime | None:
        """From when on the ledger has all rows of a source; None: it has all there were."""
        return kept_from(self.tables.facts(TABLES[0])).get(source)

    def keep_from(self, source: str, moment: datetime) -> None:
        """Note that a source's rows before `moment` are about to be removed. The caller holds the
        lock. Raises `LedgerError` where another process notes something at the same time.
        """
        kept = kept_from(self.tables.facts(TABLES[0])) | {source: moment}
        self.tables.set_properties(TABLES[0], kept_from_property(kept))
        if self.kept_from(source) != moment:
            raise LedgerError(
                f"Another process changed the ledger at {self.root}; no rows were removed",
                advice="run the command again",
                transient=True,
            )

    def check_writable(self) -> None:
        """Raise where a local root cannot be written. For other roots the first write raises."""
        locations.check_writable(self.root)

    def lock_for_writing(self, patience: Patience) -> AbstractContextManager[None]:
        """Hold the lock of a local root; see `locations.lock_for_writing`."""
        return locations.lock_for_writing(self.root, patience)

    def write_sweep(
        self,
        journal: Journal,
        summary: SweepSummary,
        exhausted: Sequence[ExhaustedPiece],
        patience: Patience,
        *,
        retries_changed: bool,
    ) -> None:
        """Write all that a sealed sweep did; what the tables have of it already stays as it is.

        The journal is read before the lock is taken: its server may not answer, and other sources
        write to the same ledger. Raises `LedgerLockedError` once patience is at its end.
        """
        sweep_id = UUID(summary.sweep_id)
        rows = self.tables.rows(journal, sweep_id)
        ready = [_Piece("sweeps", rows.sweep(summary), AppTransaction(sweep_id))]
        if retries_changed:
            only = AppTransaction(sweep_id)
            ready.append(_Piece("retries", rows.retries(), only, replaces=journal.source))
        before = 0
        for before, dispatched in enumerate(rows.dispatched(), start=1):
            ready.append(_Piece("tombstones", dispatched, AppTransaction(sweep_id, before)))
            self._write_together(ready, patience)
            ready = []
        for pieces in _exhausted(rows, exhausted, AppTransaction(sweep_id, before + 1)):
            self._write_together([*ready, *pieces], patience)
            ready = []
        self._write_together(ready, patience)

    def write_command(
        self,
        journal: CommandJournal,
        sweep_id: UUID,
        command: UnsettledCommand,
        patience: Patience,
    ) -> None:
        """Write all that a sealed command did; what the tables have of it already stays as it is.
        A command has no row in `sweeps`.
        """
        changes = journal.changes(sweep_id)
        if not changes:
            return
        with self.lock_for_writing(patience):
            self._require_changes()
        rows, only = self.tables.rows(journal, sweep_id), AppTransaction(sweep_id)
        for number, piece in enumerate(changes, start=1):
            tombstones, changed = rows.changes(piece)
            transaction = AppTransaction(sweep_id, number)
            if command.command.name is CommandName.CANCEL:
                self._write_together([_Piece("tombstones", tombstones, transaction)], patience)
            self._write_together([_Piece(CHANGES, changed, transaction)], patience)
        if command.attempts_changed:
            retries = _Piece("retries", rows.retries(), only, replaces=journal.source)
            self._write_together([retries], patience)

    def append(self, name: str, rows: Rows, transaction: AppTransaction) -> None:
        """Append a piece of a sweep's rows, once; pieces count up from 1. The caller holds the
        lock.
        """
        self.tables.append(name, rows, transaction)

    def replace_source(
        self, name: str, rows: Rows, source: str, transaction: AppTransaction
    ) -> None:
        """Replace the rows of one source, once. The caller holds the lock."""
        self.tables.replace_source(name, rows, source, transaction)

    def _write_together(self, pieces: Sequence[_Piece], patience: Patience) -> None:
        """Write pieces of different tables under one lock. Their order does not matter: if this
        dies, the next settler writes what is missing.
        """
        if not pieces:
            return
        # In parallel, because a commit is mostly waiting.
        with self.lock_for_writing(patience), ThreadPoolExecutor(len(pieces)) as pool:
            for written in [pool.submit(self._write, piece) for piece in pieces]:
                written.result()

    def _write(self, piece: _Piece) -> None:
        if piece.replaces is None:
            self.append(piece.table, piece.rows, piece.transaction)
        else:
            self.replace_source(piece.table, piece.rows, piece.replaces, piece.transaction)

    def rows(
        self, name: str, columns: Sequence[str], *conditions: Condition
    ) -> Iterator[LedgerRow]:
        """Rows of a table, as a stream: all that fit the conditions; none if there is no table."""
        return self.tables.read(name, columns, conditions)

    def count(
        self, name: str, columns: Sequence[str], *conditions: Condition, least: int = 1
    ) -> Iterator[LedgerRow]:
        """How many rows have the same values in these columns; see `LedgerTables.count`."""
        return self.tables.count(name, columns, conditions, least)

    def _read_creatable(self) -> Identity:
        identity = self.read()
        identity.refuse_stray()
        return identity

    def _create(self, name: str, ledger_id: UUID | None) -> None:
        folder = locations.local_folder(self.root)
        if folder is not None:
            locations.clear_leftovers(folder / name)
        properties = {"delta.setTransactionRetentionDuration": _RETENTION}
        properties |= _id_properties(name, ledger_id)
        if name == TABLES[0]:
            properties |= {_STATISTICS: _SKIPPED_BY, FORMAT_PROPERTY: FORMAT_MARK}
        self.tables.create(name, properties)


def _id_properties(name: str, ledger_id: UUID | None) -> Mapping[str, str]:
    return {ID_PROPERTY: str(ledger_id), ROLE_PROPERTY: name}


def _exhausted(
    rows: SweepRows, pieces: Sequence[ExhaustedPiece], only: AppTransaction
) -> Iterator[tuple[_Piece, _Piece]]:
    """What a sweep exhausted, for `tombstones` and `errors`. A single piece has the transactions
    that versions without pieces gave it (`only`, in `tombstones`). Several are counted by
    themselves: then an older version that goes on with the sweep does not take the first for all.
    """
    for number, piece in enumerate(pieces, start=1):
        of_errors = of_tombstones = AppTransaction(only.sweep_id, number, "exhausted")
        if len(pieces) == 1:
            of_errors, of_tombstones = AppTransaction(only.sweep_id), only
        tombstones, errors = rows.exhausted(piece)
        yield _Piece("tombstones", tombstones, of_tombstones), _Piece("errors", errors, of_errors)
