"""The tombstones of one batch, as a task writes them into the journal and the ledger reads them.

The format is an Arrow IPC stream (zstd). It has those columns of the ledger's `tombstones` that
only the task knows. 1,000 tombstones are about 50 kB. pyarrow is slow to load, and idle sweeps do
not need it, so it is imported where a batch is written or read.
"""

from array import array
from collections.abc import Sequence
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


def measure_lateness(delivered: Sequence[Delivered], dispatched_us: int) -> list[int | None]:
    """How many milliseconds each message is late at `dispatched_us`: 0 if deferred, None for an
    infinite Due.
    """
    late = ((one, late_ms(one.message, dispatched_us)) for one in delivered)
    return [0 if one.is_deferred and ms is not None else ms for one, ms in late]


def encode(
    delivered: Sequence[Delivered],
    lateness_ms: Sequence[int | None],
    dispatched_us: int,
    own_queue: str,
) -> bytes:
    """The tombstones of a batch that was dispatched at `dispatched_us`, microseconds since
    1970-01-01 UTC; `own_queue` is the destination of messages that have none.
    """
    import pyarrow as pa  # noqa: PLC0415 - see above

    messages = [outcome.message for outcome in delivered]
    columns: list[Sequence[Any]] = [
        [m.key for m in messages],
        [m.message_id for m in messages],
        [m.message_type for m in messages],
        [own_queue if m.destination is None else m.destination for m in messages],
        [outcome.queue for outcome in delivered],
        [m.instant_us for m in messages],
        [dispatched_us] * len(messages),
        lateness_ms,
        [m.attempts + 1 for m in messages],
        [outcome.name for outcome in delivered],
        [m.body_bytes for m in messages],
    ]
    arrays = [make_column(c, f.type) for c, f in zip(columns, schema(), strict=True)]
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, schema(), options=options) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema()))
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def decode(stream: bytes) -> "pa.RecordBatch":
    """The record batch that `encode` wrote."""
    import pyarrow as pa  # noqa: PLC0415 - see above

    with pa.ipc.open_stream(stream) as reader:
        return reader.read_next_batch()


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
        buffers = [array("i", (0 if value is None else value for value in values))]
    elif pa.types.is_int64(kind) or pa.types.is_timestamp(kind):
        buffers = [array("q", (0 if value is None else value for value in values))]
    elif pa.types.is_float64(kind):
        buffers = [array("d", (0 if value is None else value for value in values))]
    else:
        return pa.array(values, kind)
    found = [_validity(values), *map(pa.py_buffer, buffers)]
    return pa.Array.from_buffers(kind, len(values), found)


def _text_buffers(values: Sequence[str | None]) -> list[Any]:
    """Where each text begins in bytes, and all texts."""
    texts = ["" if value is None else value for value in values]
    joined = "".join(texts)
    data = joined.encode()
    lengths = map(len, texts if len(data) == len(joined) else (text.encode() for text in texts))
    return [array("i", accumulate(lengths, initial=0)), data]


def _validity(values: Sequence[Any]) -> "pa.Buffer | None":
    """A bit for each value: 0 for NULL. None where there is no NULL."""
    import pyarrow as pa  # noqa: PLC0415 - see above

    if None not in values:
        return None
    bits = "".join("0" if value is None else "1" for value in reversed(values))
    return pa.py_buffer(int(bits, 2).to_bytes(-(-len(values) // 8), "little"))
