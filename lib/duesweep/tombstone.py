"""The account of one batch's deliveries, as it travels from a task through the journal.

An Arrow IPC stream (zstd) in the columns of the ledger's `tombstones` that only the task knows.
1,000 of them are about 50 kB.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

from duesweep.outcome import Delivered

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class BatchClock:
    """The times of one batch, in microseconds since 1970-01-01 UTC.

    `now_us` is the server's time. `shift_us` is what the store's own clock is ahead of it: 0 where
    its writers' time zone is UTC, else their reading of UTC's wall clock less the real instant.
    """

    now_us: int
    shift_us: int

    def lateness_ms(self, delivered: Sequence[Delivered]) -> list[int | None]:
        """Milliseconds since each message's stored Due; 0 for one that was deferred before."""
        now = self.now_us + self.shift_us
        return [_lateness_ms(now, one) for one in delivered]


def _lateness_ms(now_us: int, delivered: Delivered) -> int | None:
    due_us = delivered.message.due_us
    if due_us is None:
        return None
    return 0 if delivered.is_deferred else (now_us - due_us) // 1_000


@cache
def schema() -> "pa.Schema":
    """The columns of a batch's tombstones."""
    import pyarrow as pa  # noqa: PLC0415 - slow, and idle sweeps do without

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


def encode(
    delivered: Sequence[Delivered],
    lateness_ms: Sequence[int | None],
    clock: BatchClock,
    own_queue: str,
) -> bytes:
    """The batch's tombstones; `own_queue` stands for a destination that was not written."""
    import pyarrow as pa  # noqa: PLC0415 - see schema

    messages = [outcome.message for outcome in delivered]
    shift = clock.shift_us
    columns = [
        [m.key for m in messages],
        [m.message_id for m in messages],
        [m.message_type for m in messages],
        [own_queue if m.destination is None else m.destination for m in messages],
        [outcome.queue for outcome in delivered],
        [None if m.due_us is None else m.due_us - shift for m in messages],
        [clock.now_us] * len(messages),
        lateness_ms,
        [m.attempts + 1 for m in messages],
        [outcome.name for outcome in delivered],
        [m.body_bytes for m in messages],
    ]
    arrays = [pa.array(c, type=f.type) for c, f in zip(columns, schema(), strict=True)]
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


def micros(moment: datetime) -> int:
    """Microseconds since 1970-01-01 UTC of an aware datetime, exactly."""
    return (moment - _EPOCH) // timedelta(microseconds=1)
