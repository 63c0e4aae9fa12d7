"""What upkeep did, in numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from duesweep.ledger.base import TableSize
from duesweep.stores.base import DroppedSource


@dataclass(frozen=True, slots=True)
class TableReport:
    """What was done to a table of the ledger. `removed`: rows, for their age. `compacted`: small
    files that were written together. `vacuumed`: files that were deleted; None: the writer does not
    tell.
    """

    name: str
    before: TableSize
    after: TableSize
    removed: int
    compacted: int
    vacuumed: int | None


@dataclass(frozen=True, slots=True)
class MaintainReport:
    """What was done. `settled`: sweeps and commands that dead drivers had left. `counters`: retry
    counters of messages that are gone. `kept_from`: from when on the ledger has all rows; None: it
    has all there were. `forgotten`: rows of `dropped` sources that were deleted.
    """

    source: str
    settled: int
    counters: int
    kept_from: datetime | None
    tables: Sequence[TableReport]
    dropped: Sequence[DroppedSource]
    forgotten: int
