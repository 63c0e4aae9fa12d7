"""Upkeep of the ledger's tables by delta-rs, without a JVM."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from duesweep.ledger.delta_rs.errors import map_errors
from duesweep.ledger.delta_rs.quoting import literal, quote
from duesweep.ledger.upkeep import TableSize

_TRIES = 5
_HOURS = 24
# Delta's default for others; a file of messages that are kept whole has to fit into memory.
_FILE_BYTES, _FILE_BYTES_WITH_BODIES = 100_000_000, 16_000_000
_WITH_BODIES = {"errors", "changes"}


@dataclass(frozen=True, slots=True)
class DeltaRsUpkeep:
    """See `LedgerUpkeep`. `open_table` opens a table's newest version."""

    open_table: Callable[[str], DeltaTable]
    root: str

    def size(self, name: str) -> TableSize | None:
        """How large the table is; None: there is none."""
        with map_errors(f"{name} of the ledger at {self.root} is unreadable"):
            with suppress(TableNotFoundError):
                files = pa.table(self.open_table(name).get_add_actions())
                return TableSize(files.num_rows, sum(files["size_bytes"].to_pylist()))
            return None

    def remove(self, name: str, source: str, column: str, before: datetime) -> int:
        """Remove a source's rows before an instant."""
        # The instant as text: the log cannot be compared with a TIMESTAMP.
        moment = literal(before.isoformat())
        predicate = f"source = {literal(source)} AND {quote(column)} < {moment}"
        done = self._try(name, "cut", lambda table: table.delete(predicate))
        return int(done["num_deleted_rows"])

    def compact(self, name: str) -> int:
        """Write small files together."""
        size = _FILE_BYTES_WITH_BODIES if name in _WITH_BODIES else _FILE_BYTES
        done = self._try(
            name,
            "compacted",
            lambda table: table.optimize.compact(target_size=size, max_concurrent_tasks=1),
        )
        return int(done["numFilesRemoved"])

    def vacuum(self, name: str, days: int) -> int:
        """Delete files that no version of the last `days` needs, and expired log entries."""

        def clean(table: DeltaTable) -> list[str]:
            deleted = table.vacuum(
                days * _HOURS, dry_run=False, enforce_retention_duration=False, full=True
            )
            newest = self.open_table(name)
            newest.create_checkpoint()
            newest.cleanup_metadata()
            return deleted

        return len(self._try(name, "cleaned", clean))

    def _try(self, name: str, what: str, act: Callable[[DeltaTable], Any]) -> Any:
        with map_errors(f"{name} of the ledger at {self.root} could not be {what}"):
            for tries_left in reversed(range(_TRIES)):
                try:
                    return act(self.open_table(name))
                except CommitFailedError:
                    # Another process has committed meanwhile.
                    if not tries_left:
                        raise
        raise AssertionError("unreachable")
