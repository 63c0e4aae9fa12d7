"""The tombstones of one batch, as a task writes them into the journal and the ledger reads them.

The format is an Arrow IPC stream (zstd). It has those columns of the ledger's `tombstones` that
only the task knows. 1,000 tombstones are about 50 kB. pyarrow is slow to load, and idle sweeps do
not need it, so it is imported where a batch is written or read.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from duesweep.core.message import Delivered
from duesweep.core.world import late_ms

if TYPE_CHECKING:
    import pyarrow as pa


@cache
def schema() -> "pa.Schema":
    """The columns of a batch's tombstones."""
    import pyarrow as pa  # noqa: PLC0415 - see above

    return pa.schema(
        [
            ("message_key", pa.string()),
            ("message_id", pa.string()),
            ("message_type", pa.string()),
            ("destination", pa.string()),
            ("queue", pa.string()),
            ("due", pa.timestamp("us", tz="UTC")),
            ("dispatched_at", pa.timestamp("us", tz="UTC")),
            ("lateness_ms", pa.int64()),
            ("attempts", pa.int32()),
            ("outcome", pa.string()),
            ("body_bytes", pa.int64()),
        ]
    )


@dataclass(slots=True)
class Tombstones:
    """The messages that a batch dispatched, column by column, all in one order.

    `destinations` are addresses as they were written. `instants_us` are the instants at which they
    were due, in microseconds since 1970-01-01 UTC; None: an infinite Due. `attempts` are the
    failures before. `deferred` says which were not due yet, so that the queue itself delays them.
    """

    keys: list[str] = field(default_factory=list)
    message_ids: list[str | None] = field(default_factory=list)
    message_types: list[str | None] = field(default_factory=list)
    destinations: list[str] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)
    instants_us: list[int | None] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)
    body_bytes: list[int] = field(default_factory=list)
    deferred: list[bool] = field(default_factory=list)

    @classmethod
    def of(cls, delivered: Sequence[Delivered], own_queue: str) -> "Tombstones":
        """Tombstones of delivered messages; `own_queue` is for messages without a destination."""
        messages = [outcome.message for outcome in delivered]
        return cls(
            [m.key for m in messages],
            [m.message_id for m in messages],
            [m.message_type for m in messages],
            [own_queue if m.destination is None else m.destination for m in messages],
            [outcome.queue for outcome in delivered],
            [m.instant_us for m in messages],
            [m.attempts for m in messages],
            [m.body_bytes for m in messages],
            [outcome.is_deferred for outcome in delivered],
        )

    def add(self, more: "Tombstones") -> None:
        """Add the tombstones of other messages of the batch."""
        for each in fields(self):
            getattr(self, each.name).extend(getattr(more, each.name))

    @property
    def failed_before(self) -> list[str]:
        """The keys of messages that have failed before."""
        return [key for key, failures in zip(self.keys, self.attempts, strict=True) if failures]

    def lateness_ms(self, dispatched_us: int) -> list[int | None]:
        """How many whole milliseconds each message is late at `dispatched_us`: 0 if deferred, None
        for an infinite Due.
        """
        return [
            0 if is_deferred and due is not None else late_ms(due, dispatched_us)
            for due, is_deferred in zip(self.instants_us, self.deferred, strict=True)
        ]

    def encode(self, lateness_ms: Sequence[int | None], dispatched_us: int) -> bytes:
        """As they are journalled by a batch that was dispatched at `dispatched_us`, microseconds
        since 1970-01-01 UTC.
        """
        import pyarrow as pa  # noqa: PLC0415 - see above

        columns: list[Sequence[Any]] = [
            self.keys,
            self.message_ids,
            self.message_types,
            self.destinations,
            self.queues,
            self.instants_us,
            [dispatched_us] * len(self.keys),
            lateness_ms,
            [failures + 1 for failures in self.attempts],
            ["deferred" if is_deferred else "dispatched" for is_deferred in self.deferred]
            if any(self.deferred)
            else ["dispatched"] * len(self.keys),
            self.body_bytes,
        ]
        arrays = [make_column(c, f.type) for c, f in zip(columns, schema(), strict=True)]
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, schema(), options=options) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema()))
        stream: bytes = sink.getvalue().to_pybytes()
        return stream


def decode(stream: bytes) -> "pa.RecordBatch":
    """The record batch of an encoded stream."""
    import pyarrow as pa  # noqa: PLC0415 - see above

    with pa.ipc.open_stream(stream) as reader:
        return reader.read_next_batch()


def columns(stream: bytes, *names: str) -> Sequence[Sequence[Any]]:
    """The values of some columns of an encoded stream, in the order of the schema, without reading
    the rest.
    """
    import pyarrow as pa  # noqa: PLC0415 - see above

    places = [schema().get_field_index(name) for name in names]
    options = pa.ipc.IpcReadOptions(included_fields=places)
    with pa.ipc.open_stream(stream, options=options) as reader:
        return [column.to_pylist() for column in reader.read_next_batch().columns]


def is_late(stream: bytes, by_ms: float) -> bool:
    """Whether a message of an encoded stream was dispatched later than that at its first attempt.
    One that a queue delays by itself was not dispatched late.
    """
    late, attempts = columns(stream, "lateness_ms", "attempts")
    return any(
        ms is not None and ms > by_ms and attempt == 1
        for ms, attempt in zip(late, attempts, strict=True)
    )


def make_column(values: Sequence[Any], kind: "pa.DataType") -> "pa.Array":
    """`values` (None: NULL) as a column of Arrow. Texts, whole numbers, floating-point numbers, and
    instants in microseconds are done here; other types are `pyarrow.array`'s, which imports pandas
    where it is installed, only to see whether it was given one of its objects: 0.3 s of CPU and
    54 MB, in each tick and in each Python worker.
    """
    import pyarrow as pa  # noqa: PLC0415 - see above

    if pa.types.is_string(kind):
        buffers = _text_buffers(values)
    elif pa.types.is_int32(kind):
        buffers = [_numbers("i", values)]
    elif pa.types.is_int64(kind) or pa.types.is_timestamp(kind):
        buffers = [_numbers("q", values)]
    elif pa.types.is_float64(kind):
        buffers = [_numbers("d", values)]
    else:
        return pa.array(values, kind)
    found = [_validity(values), *map(pa.py_buffer, buffers)]
    return pa.Array.from_buffers(kind, len(values), found)


def _numbers(code: str, values: Sequence[Any]) -> "array[Any]":
    return array(code, _filled(values, 0))


def _filled(values: Sequence[Any], filler: object) -> Sequence[Any]:
    """The values with `filler` for None. To look for None takes a tenth of a loop's time."""
    return [filler if v is None else v for v in values] if None in values else values


def _text_buffers(values: Sequence[str | None]) -> list[Any]:
    """The start of each text in bytes, and all texts."""
    texts = _filled(values, "")
    if texts and texts[0] and texts.count(texts[0]) == len(texts):
        data = texts[0].encode()
        return [array("i", range(0, len(data) * len(texts) + 1, len(data))), data * len(texts)]
    joined = "".join(texts)
    data = joined.encode()
    lengths = map(len, texts if len(data) == len(joined) else (text.encode() for text in texts))
    return [array("i", accumulate(lengths, initial=0)), data]


def _validity(values: Sequence[Any]) -> "pa.Buffer | None":
    """A bit for each value: 0 for NULL. None without any NULL."""
    import pyarrow as pa  # noqa: PLC0415 - see above

    if None not in values:
        return None
    bits = "".join("0" if value is None else "1" for value in reversed(values))
    return pa.py_buffer(int(bits, 2).to_bytes(-(-len(values) // 8), "little"))
