"""What a sweep dispatched, decoded from its journal into rows of `tombstones`."""

from collections.abc import Iterator
from uuid import UUID

import pyarrow as pa

from duesweep import tombstone
from duesweep.arrow import make_column
from duesweep.ledger.schemas import TOMBSTONES
from duesweep.stores.journal import Journal, JournalBatch


def dispatched_tables(journal: Journal, sweep_id: UUID) -> Iterator[pa.Table]:
    """The rows, in the journal's pieces; 1,000 messages are 50 kB."""
    for batches in journal.batches(sweep_id):
        yield pa.concat_tables(_decode_batch(batch, journal.source) for batch in batches)


def _decode_batch(batch: JournalBatch, source: str) -> pa.Table:
    rows = pa.Table.from_batches([tombstone.decode(batch.outcomes)])
    same = {"sweep_id": str(batch.sweep_id), "source": source}
    if "outcome" not in rows.column_names:
        # Written by a version that could not defer messages.
        same["outcome"] = "dispatched"
    for name, value in same.items():
        rows = rows.append_column(name, make_column([value] * rows.num_rows, pa.string()))
    return rows.select(TOMBSTONES.names)
