"""The tombstones of one batch, as a task writes them into the journal.

The format is an Arrow IPC stream (zstd). It has those columns of the ledger's `tombstones` that
only the task knows. 1,000 tombstones are about 50 kB.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from duesweep.arrow import make_column
from duesweep.core.outcome import Delivered
from duesweep.core.world import late_ms

if TYPE_CHECKING:
    import pyarrow as pa


@cache
def schema() -> "pa.Schema":
    """The columns of a batch's tombstones."""
    import pyarrow as pa  # noqa: PLC0415 - slow, and idle sweeps do not need it

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
    import pyarrow as pa  # noqa: PLC0415 - see schema

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
    import pyarrow as pa  # noqa: PLC0415 - see schema

    with pa.ipc.open_stream(stream) as reader:
        return reader.read_next_batch()
