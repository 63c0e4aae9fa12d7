"""The contract of a ledger writer's upkeep: small files, old files and old rows."""

from datetime import datetime
from typing import NamedTuple, Protocol


class TableSize(NamedTuple):
    """The data files of a table's current version, and their bytes."""

    files: int = 0
    bytes: int = 0


class LedgerUpkeep(Protocol):
    """Upkeep of the tables under one root. Another writer may commit at the same time: then it
    tries again. Raises `LedgerError`.
    """

    def size(self, name: str) -> TableSize | None:
        """How large the table is; None: there is none."""
        ...

    def remove(self, name: str, source: str, column: str, before: datetime) -> int:
        """Remove a source's rows whose instant is before this one; how many."""
        ...

    def compact(self, name: str) -> int:
        """Write small files together into larger ones; how many small ones there were."""
        ...

    def vacuum(self, name: str, days: int) -> int | None:
        """Delete files that no version of the last `days` needs, and log entries that have expired;
        how many files. None: the writer does not tell.
        """
        ...
