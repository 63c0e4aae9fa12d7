"""Reads from the ledger which messages exhausted their attempts, and what became of them since.

It connects to no store. What a journal holds that is not settled yet is not in the ledger.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from duesweep.core.change import ChangeKind
from duesweep.core.errors import ConfigError
from duesweep.core.exhausted import ErrorFilter, ErrorId, ErrorRow, KeptMessage
from duesweep.core.message import first_type
from duesweep.core.routing import UnknownDestination, find_unknown
from duesweep.ledger.base import ENCLOSED_TYPES, Among, Between, Condition, LedgerRow
from duesweep.ledger.ledger import Ledger

_CHANGES = (ChangeKind.REPLAYED.value, ChangeKind.DISCARDED.value)
_ROW = (
    *("sweep_id", "message_key", "message_id", "destination", "attempts", "first_failed_at"),
    *("last_failed_at", "error_class", "error_text", ENCLOSED_TYPES),
)
_KEPT = ("sweep_id", "message_key", "destination", "headers", "headers_text", "body")
# A longer list costs more than the files that it lets a reader skip.
_MOST_SWEEPS = 500


@dataclass(frozen=True, slots=True)
class Fate:
    """The last thing that an operator did with an error: a row of `changes`."""

    kind: ChangeKind
    changed_at: datetime
    given_by: str | None
    reason: str | None
    queue: str | None
    command_id: str


class ExhaustedMessages:
    """One source's rows of the ledger's `errors`."""

    def __init__(self, ledger: Ledger, source: str) -> None:
        self._ledger = ledger
        self._source = Among("source", [source])

    def check(self) -> None:
        """Raise `ConfigError` where there is no ledger, or where it has lost tables: it would seem
        that nothing has failed, or that nothing was replayed.
        """
        identity = self._ledger.read()
        identity.refuse_incomplete(self._ledger.root)
        if identity.ledger_id is None:
            raise ConfigError(
                f"There is no ledger at {self._ledger.root}",
                advice="check ledger.root; the first sweep creates the ledger",
            )

    def rows(self, chosen: ErrorFilter) -> Iterator[ErrorRow]:
        """The errors that a filter means, in no order."""
        for found in self._ledger.rows("errors", _ROW, *self._conditions(chosen)):
            row = _row(found)
            if chosen.matches(row):
                yield row

    def unknown_destination(self, chosen: ErrorFilter) -> UnknownDestination | None:
        """The filter's destination, if no error was ever for it."""
        if chosen.destination is None:
            return None
        found = self._ledger.rows("errors", ("destination",), self._source)
        return find_unknown(chosen.destination, {row["destination"] for row in found} - {None})

    def fates(self) -> dict[ErrorId, Fate]:
        """What became of errors; those that nobody has touched are not in it."""
        columns = ("of", "message_key", "change", "changed_at", "given_by", "reason", "queue")
        found: dict[ErrorId, Fate] = {}
        changes = Among("change", _CHANGES)
        for row in self._ledger.rows("changes", (*columns, "sweep_id"), self._source, changes):
            error, fate = ErrorId(row["of"], row["message_key"]), _fate(row)
            if error not in found or found[error].changed_at <= fate.changed_at:
                found[error] = fate
        return found

    def kept(self, chosen: Mapping[ErrorId, ErrorRow]) -> Iterator[tuple[ErrorId, KeptMessage]]:
        """What is kept of these errors, headers and body and all, as a stream."""
        for row in self._ledger.rows("errors", _KEPT, *self._around(chosen)):
            error = ErrorId(row["sweep_id"], row["message_key"])
            if error in chosen:
                yield error, _kept(row)

    def details(self, error: ErrorId) -> LedgerRow:
        """All that the ledger has of an error."""
        columns = (*_ROW, "headers", "headers_text", "body", "stack")
        (row, *_) = self._ledger.rows(
            "errors",
            columns,
            self._source,
            Among("sweep_id", [error.sweep_id]),
            Among("message_key", [error.key]),
        )
        return row

    def changes(self, error: ErrorId) -> list[LedgerRow]:
        """What operators did with an error, the first thing first."""
        columns = ("changed_at", "change", "queue", "new_key", "given_by", "reason", "sweep_id")
        found = self._ledger.rows(
            "changes",
            columns,
            self._source,
            Among("of", [error.sweep_id]),
            Among("message_key", [error.key]),
        )
        return sorted(found, key=lambda row: row["changed_at"])

    def in_error_queues(self, chosen: Collection[ErrorId]) -> dict[str, int]:
        """How many of these errors have a copy in an error queue, by queue: somebody may replay
        them from there, too.
        """
        counts: dict[str, int] = {}
        columns = ("sweep_id", "message_key", "queue")
        exhausted = Among("outcome", ["exhausted"])
        conditions = (self._source, exhausted, *_among_sweeps(chosen))
        for row in self._ledger.rows("tombstones", columns, *conditions):
            is_copied = ErrorId(row["sweep_id"], row["message_key"]) in chosen
            if is_copied and row["queue"] is not None:
                counts[row["queue"]] = counts.get(row["queue"], 0) + 1
        return counts

    def _conditions(self, chosen: ErrorFilter) -> Iterator[Condition]:
        yield self._source
        yield Between("last_failed_at", chosen.since, chosen.until)

    def _around(self, chosen: Mapping[ErrorId, ErrorRow]) -> Iterator[Condition]:
        """What lets the storage skip rows that were not chosen."""
        yield self._source
        yield Between("last_failed_at", min(row.last_failed_at for row in chosen.values()))
        yield from _among_sweeps(chosen)


def _among_sweeps(chosen: Collection[ErrorId]) -> Iterator[Condition]:
    sweeps = {error.sweep_id for error in chosen}
    if len(sweeps) <= _MOST_SWEEPS:
        yield Among("sweep_id", sorted(sweeps))


def _row(row: LedgerRow) -> ErrorRow:
    return ErrorRow(
        id=ErrorId(row["sweep_id"], row["message_key"]),
        message_id=row["message_id"],
        message_type=first_type(row[ENCLOSED_TYPES]),
        destination=row["destination"],
        attempts=row["attempts"],
        first_failed_at=row["first_failed_at"],
        last_failed_at=row["last_failed_at"],
        error_class=row["error_class"],
        error_text=row["error_text"],
    )


def _kept(row: Mapping[str, Any]) -> KeptMessage:
    text = row["headers_text"] or ""
    return KeptMessage(row["message_key"], row["destination"], row["headers"], text, row["body"])


def _fate(row: LedgerRow) -> Fate:
    return Fate(
        kind=ChangeKind(row["change"]),
        changed_at=row["changed_at"],
        given_by=row["given_by"],
        reason=row["reason"],
        queue=row["queue"],
        command_id=row["sweep_id"],
    )
