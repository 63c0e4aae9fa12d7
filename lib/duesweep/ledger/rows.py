"""The ledger's rows as Arrow, for both writers: the columns of each table, and the journal's rows
of a sealed sweep or command. Read again, a sweep's rows come in the same pieces. And rows that were
read, as Python's values.

Times are UTC instants, `_ms` milliseconds, `bytes` bytes. Each column may be NULL.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from functools import partial
from importlib.resources import files
from typing import Any
from uuid import UUID

import pyarrow as pa

from duesweep.core.account import SweepSummary, SweepTally
from duesweep.core.change import ChangeKind
from duesweep.core.world import instant_of, micros
from duesweep.ledger.base import LedgerRow, Rows
from duesweep.stores import tombstone
from duesweep.stores.journal import Journal, Piece
from duesweep.stores.tombstone import columns, decode, is_late, make_column

_RETRIES_PER_PAGE = 20_000
# A batch's rows are this many times as large as its stream.
_UNPACKED = 5
_TEXT, _COUNT, _INSTANT = pa.string(), pa.int64(), pa.timestamp("us", tz="UTC")

# The columns that a batch does not know, and its own.
TOMBSTONES = pa.schema([("sweep_id", _TEXT), ("source", _TEXT), *tombstone.schema()])
RETRIES = pa.schema(
    {
        "source": _TEXT,
        "message_key": _TEXT,
        "message_id": _TEXT,
        "destination": _TEXT,
        "attempts": pa.int32(),
        "first_failed_at": _INSTANT,
        "last_failed_at": _INSTANT,
        "next_attempt_at": _INSTANT,
        "error_class": _TEXT,
        "error_text": _TEXT,
    }
)
ERRORS = pa.schema(
    [
        *RETRIES,
        pa.field("sweep_id", _TEXT),
        pa.field("headers", pa.map_(_TEXT, _TEXT)),
        pa.field("headers_text", _TEXT),
        pa.field("body", pa.binary()),
        pa.field("stack", _TEXT),
    ]
)
_KINDS: Mapping[Any, pa.DataType] = {
    **{str: _TEXT, str | None: _TEXT, int: _COUNT, int | None: _COUNT},
    **{float: pa.float64(), datetime: _INSTANT},
}
SWEEPS = pa.schema(
    [
        (one.name, _KINDS[one.type])
        for one in fields(SweepSummary)
        if one.name not in {"failures", "breakers", "careful_batches"}
    ]
)
CHANGES = pa.schema(
    {
        "sweep_id": _TEXT,
        "source": _TEXT,
        "command": _TEXT,
        "change": _TEXT,
        "changed_at": _INSTANT,
        "given_by": _TEXT,
        "reason": _TEXT,
        "message_key": _TEXT,
        "message_id": _TEXT,
        "message_type": _TEXT,
        "destination": _TEXT,
        "due_before": _INSTANT,
        "due_after": _INSTANT,
        "queue": _TEXT,
        "of": _TEXT,
        "new_key": _TEXT,
        "headers": pa.map_(_TEXT, _TEXT),
        "headers_text": _TEXT,
        "body": pa.binary(),
        "body_bytes": _COUNT,
    }
)
SCHEMAS = {
    "tombstones": TOMBSTONES,
    "retries": RETRIES,
    "errors": ERRORS,
    "sweeps": SWEEPS,
    "changes": CHANGES,
}


def comments(name: str) -> Mapping[str, str]:
    """The comments of a table's columns, and under the empty name its own."""
    text = files("duesweep.ledger").joinpath("comments.toml").read_text(encoding="utf-8")
    found: Mapping[str, str] = tomllib.loads(text)[name]
    return found


def dispatched(journal: Journal, sweep_id: UUID, tally: SweepTally | None = None) -> Iterator[Rows]:
    """`tombstones` of dispatched messages, in the journal's pieces; the `tally` counts them."""
    same = {"sweep_id": str(sweep_id), "source": journal.source}
    for batches in journal.batches(sweep_id):
        if tally is not None:
            for outcomes in batches:
                [destinations] = columns(outcomes, "destination")
                tally.count(destinations, "dispatched")
                if tally.objective_ms is not None:
                    tally.is_late = tally.is_late or is_late(outcomes, tally.objective_ms)
        # Decoded as they are written: a piece would take 150 MB, and it takes 30 MB.
        decoded = partial(map, partial(_decoded, same), batches)
        yield Rows(decoded, _UNPACKED * sum(map(len, batches)))


def exhausted(journal: Journal, piece: Piece, tally: SweepTally | None = None) -> tuple[Rows, Rows]:
    """A piece of a sweep's exhausted messages: for `tombstones`, and whole for `errors`; the
    `tally` counts them.
    """
    rows = journal.piece_rows(piece)
    if tally is not None:
        tally.count((row.destination for row in rows), "exhausted")
    tombstones = _batch(TOMBSTONES, rows, {"source": journal.source, "outcome": "exhausted"})
    errors = _batch(ERRORS, rows, {"source": journal.source, "next_attempt_at": None})
    return _kept([tombstones]), _kept([errors])


def changes(journal: Journal, piece: Piece) -> tuple[Rows, Rows]:
    """A piece of a command's changes: for `tombstones`, only cancelled messages, and for
    `changes`.
    """
    rows = journal.piece_rows(piece)
    cancelled = _batch(
        TOMBSTONES,
        [row for row in rows if row.change == ChangeKind.CANCELLED],
        {"source": journal.source, "outcome": ChangeKind.CANCELLED.value, "lateness_ms": None},
        due="due_before",
        dispatched_at="changed_at",
    )
    return _kept([cancelled]), _kept([_batch(CHANGES, rows, {"source": journal.source})])


def retries(
    journal: Journal,
    summary: SweepSummary | None = None,
    tally: SweepTally | None = None,
) -> Rows:
    """`retries`: the source's messages that failed and are still in the store; the `tally` counts
    the ones that failed in the sweep of this summary.
    """
    # Packed, because there may be very many; their reasons are mostly the same.
    packed = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(packed, RETRIES, options=options) as stream:
        for page in journal.retries_rows(_RETRIES_PER_PAGE):
            stream.write_batch(_batch(RETRIES, page, {"source": journal.source}))
            if summary is not None and tally is not None:
                start, end = micros(summary.start), micros(summary.end)
                failed = (row.destination for row in page if start <= row.last_failed_at <= end)
                tally.count(failed, "failed")
    pages = packed.getvalue()
    return Rows(lambda: pa.ipc.open_stream(pages), pages.size)


def sweep(summary: SweepSummary) -> Rows:
    """`sweeps`: the one row."""
    instants = {f.name for f in SWEEPS if pa.types.is_timestamp(f.type)}
    return _kept(
        [_batch(SWEEPS, [summary], {name: micros(getattr(summary, name)) for name in instants})]
    )


def plain(batch: pa.RecordBatch) -> Iterator[LedgerRow]:
    """The rows of a batch that was read. Arrow's own conversion ends at the first instant that is
    outside of Python's years.
    """
    instants = []
    maps = [found.name for found in batch.schema if pa.types.is_map(found.type)]
    for index, found in enumerate(batch.schema):
        if pa.types.is_timestamp(found.type):
            instants.append(found.name)
            exact = batch.column(index).cast(_INSTANT).cast(pa.int64())
            batch = batch.set_column(index, found.name, exact)
    for row in batch.to_pylist():
        for name in maps:
            row[name] = None if row[name] is None else dict(row[name])
        for name in instants:
            row[name] = None if row[name] is None else instant_of(row[name])
        yield row


def _kept(batches: Sequence[pa.RecordBatch]) -> Rows:
    return Rows(lambda: batches, sum(batch.nbytes for batch in batches))


def _decoded(same: Mapping[str, str], outcomes: bytes) -> pa.RecordBatch:
    found = decode(outcomes)
    columns = [
        make_column([same[field.name]] * found.num_rows, field.type)
        if field.name in same
        else found.column(field.name)
        for field in TOMBSTONES
    ]
    return pa.RecordBatch.from_arrays(columns, schema=TOMBSTONES)


def _batch(
    schema: pa.Schema, rows: Sequence[Any], same: Mapping[str, object], **renamed: str
) -> pa.RecordBatch:
    """Rows of the journal, whose instants are microseconds. `same` are values of all rows;
    `renamed` are the journal's names of columns that have others there.
    """
    columns = [
        _column(
            [same[field.name]] * len(rows)
            if field.name in same
            else [getattr(row, renamed.get(field.name, field.name)) for row in rows],
            field.type,
        )
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_map(kind):
        return make_column([_pairs(text) for text in values], kind)
    if pa.types.is_string(kind):
        return make_column([_text(value) for value in values], kind)
    return make_column(values, kind)


def _pairs(text: str | None) -> list[tuple[str, str | None]] | None:
    """The headers of a message, each name once; None where they are no JSON object."""
    try:
        headers = json.loads(text) if text else None
        if not isinstance(headers, dict):
            return None
        texts = {
            name: value if isinstance(value, str) or value is None else json.dumps(value)
            for name, value in headers.items()
        }
        # Names that differ only in halves of surrogate pairs become one.
        return [*{_text(name) or "": _text(text) for name, text in texts.items()}.items()]
    except (ValueError, RecursionError):
        return None


def _text(value: str | None) -> str | None:
    """As UTF-8 has it: a lone surrogate, which JSON can hold, becomes a question mark."""
    return None if value is None else str(value).encode("utf-8", "replace").decode()
