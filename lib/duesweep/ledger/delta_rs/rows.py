"""A sealed sweep or command of the journal as Arrow, read by this process."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import pyarrow as pa

from duesweep.arrow import make_column
from duesweep.core.change import ChangeKind
from duesweep.core.world import micros
from duesweep.ledger.dispatched import dispatched_tables
from duesweep.ledger.schemas import CHANGES, ERRORS, RETRIES, SWEEPS, TOMBSTONES
from duesweep.stores.journal import ExhaustedPiece, Journal, SweepSummary
from duesweep.stores.steering import CommandJournal

_RETRIES_PER_PAGE = 20_000


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """Rows that can be read more than once. They take at least `size_bytes`; 0: not known."""

    schema: pa.Schema
    batches: Callable[[], Iterator[pa.RecordBatch]]
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ArrowSweepRows:
    """The rows of one sealed sweep or command. Read again, they come in the same pieces."""

    journal: Journal
    sweep_id: UUID

    def dispatched(self) -> Iterator[ArrowRows]:
        """`tombstones` of what was dispatched, in pieces that fit the driver's memory."""
        for table in dispatched_tables(self.journal, self.sweep_id):
            yield ArrowRows(TOMBSTONES, partial(_batches, table.cast(TOMBSTONES)), table.nbytes)

    def exhausted(self, piece: ExhaustedPiece) -> tuple[ArrowRows, ArrowRows]:
        """A piece of what was exhausted: for `tombstones`, and whole for `errors`."""
        rows = self.journal.exhausted_rows(self.sweep_id, piece)
        same = {"source": self.journal.source}
        tombstones = _batch(rows, TOMBSTONES, same | {"outcome": "exhausted"})
        errors = _batch(rows, ERRORS, {**same, "next_attempt_at": None})
        return (
            ArrowRows(TOMBSTONES, lambda: iter([tombstones]), tombstones.nbytes),
            ArrowRows(ERRORS, lambda: iter([errors]), errors.nbytes),
        )

    def changes(self, piece: ExhaustedPiece) -> tuple[ArrowRows, ArrowRows]:
        """A piece of what a command changed: for `tombstones`, and for `changes`."""
        assert isinstance(self.journal, CommandJournal)
        rows = self.journal.changes_rows(self.sweep_id, piece)
        cancelled = [_Cancelled(row) for row in rows if row.change == ChangeKind.CANCELLED]
        same = {"source": self.journal.source}
        tombstones = _batch(cancelled, TOMBSTONES, same)
        changes = _batch(rows, CHANGES, same)
        return (
            ArrowRows(TOMBSTONES, lambda: iter([tombstones]), tombstones.nbytes),
            ArrowRows(CHANGES, lambda: iter([changes]), changes.nbytes),
        )

    def retries(self) -> ArrowRows:
        """`retries`: the source's messages that failed and are still in the store."""
        same = {"source": self.journal.source}
        # Packed, because there may be very many; their reasons are mostly the same.
        packed = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(packed, RETRIES, options=options) as stream:
            for page in self.journal.retries_rows(_RETRIES_PER_PAGE):
                stream.write_batch(_batch(page, RETRIES, same))
        pages = packed.getvalue()
        return ArrowRows(RETRIES, lambda: iter(pa.ipc.open_stream(pages)), pages.size)

    def sweep(self, summary: SweepSummary) -> ArrowRows:
        """`sweeps`: the one row."""
        values = {f.name: getattr(summary, f.name) for f in SWEEPS}
        columns = [make_column([_plain(values[f.name])], f.type) for f in SWEEPS]
        row = pa.RecordBatch.from_arrays(columns, schema=SWEEPS)
        return ArrowRows(SWEEPS, lambda: iter([row]))


class _Cancelled:
    """A row of the journal's changes as one of `tombstones`."""

    outcome = ChangeKind.CANCELLED.value
    lateness_ms = None

    def __init__(self, row: Any) -> None:
        self._row = row
        self.due = row.due_before
        self.dispatched_at = row.changed_at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._row, name)


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    return iter(table.to_batches())


def _batch(
    rows: Sequence[Any], schema: pa.Schema, same: Mapping[str, str | None]
) -> pa.RecordBatch:
    """Rows of the journal, whose instants are microseconds; `same` are values of all rows."""
    columns = [
        _column(
            field,
            [same[field.name]] * len(rows)
            if field.name in same
            else [getattr(row, field.name) for row in rows],
        )
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    if pa.types.is_map(field.type):
        return make_column([_pairs(text) for text in values], field.type)
    if pa.types.is_string(field.type):
        return make_column([_text(value) for value in values], field.type)
    return make_column(values, field.type)


def _plain(value: Any) -> Any:
    """An instant in microseconds; other values as they are."""
    return micros(value) if isinstance(value, datetime) else value


def _pairs(text: str | None) -> list[tuple[str, str | None]] | None:
    """The headers of a message, each name once; None where they are no JSON object."""
    try:
        headers = json.loads(text) if text else None
        if not isinstance(headers, dict):
            return None
        # Names that differ only in halves of surrogate pairs become one.
        return [*{_text(name) or "": _value(value) for name, value in headers.items()}.items()]
    except (ValueError, RecursionError):
        return None


def _value(value: Any) -> str | None:
    return _text(value if isinstance(value, str) or value is None else json.dumps(value))


def _text(value: str | None) -> str | None:
    """As UTF-8 has it: a lone surrogate, which JSON can hold, becomes a question mark."""
    return None if value is None else str(value).encode("utf-8", "replace").decode()
