"""The ledger's tables by delta-rs, without a JVM.

delta-rs reads credentials from the environment, as in AWS_ACCESS_KEY_ID:
https://delta-io.github.io/delta-rs/usage/loading-table/
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from duesweep.core.timeouts import DEFAULT_TIMEOUTS
from duesweep.errors import ConfigError, LedgerError
from duesweep.ledger import locations
from duesweep.ledger.base import AppTransaction
from duesweep.ledger.delta_rs.counting import count_rows
from duesweep.ledger.delta_rs.errors import ignore_conflicts, map_errors
from duesweep.ledger.delta_rs.quoting import literal
from duesweep.ledger.delta_rs.reading import read_rows
from duesweep.ledger.delta_rs.rows import ArrowRows, ArrowSweepRows
from duesweep.ledger.delta_rs.upkeep import DeltaRsUpkeep
from duesweep.ledger.identity import ID_PROPERTY, LedgerTableFacts
from duesweep.ledger.reading import Condition, LedgerRow
from duesweep.ledger.schemas import SCHEMAS
from duesweep.stores.journal import Journal

_CONFLICT_TRIES = 5
# After so many commits a table's small files become one of about 2 MB, which then stays as it is: a
# sweep each minute writes 1,440 files a day. Not of `errors`, whose messages would have to fit into
# memory.
_COMPACT_EVERY, _COMPACTED_BYTES, _COMPACTED = 100, 2_000_000, {"tombstones", "sweeps"}


@dataclass(frozen=True, slots=True)
class DeltaRsTables:
    """The tables under a path: a local folder, `s3://`, `abfss://` or `gs://`. A storage that does
    not answer ends a call within `silence_seconds`.
    """

    root: str
    silence_seconds: float = DEFAULT_TIMEOUTS.silence_seconds

    def rows(self, journal: Journal, sweep_id: UUID) -> ArrowSweepRows:
        """Arrow; read from the journal by this process."""
        return ArrowSweepRows(journal, sweep_id)

    def facts(self, name: str) -> LedgerTableFacts:
        """What is at the table's location."""
        location = self._location(name)
        with map_errors(f"The ledger at {self.root} is unreadable"):
            try:
                table = self._open(name)
            except TableNotFoundError:
                return LedgerTableFacts(name, location, holds_data=self._holds_data(name))
        found = table.metadata().configuration
        columns = () if ID_PROPERTY in found else table.schema().to_arrow().names
        return LedgerTableFacts(name, location, found, columns=frozenset(columns))

    def create(self, name: str, properties: Mapping[str, str]) -> None:
        """Create the table, unless it is there."""
        # Who loses a race finds what the other one created.
        with (
            map_errors(f"{self._location(name)} could not be created"),
            ignore_conflicts(),
        ):
            DeltaTable.create(
                self._uri(name),
                SCHEMAS[name],
                mode="ignore",
                storage_options=self._options(),
                configuration=dict(properties),
                # The ledger's own properties are no keys of Delta's.
                raise_if_key_not_exists=False,
            )

    def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        """Add properties to a table."""
        failure = f"{self._location(name)} could not be marked as the ledger's"
        with map_errors(failure), ignore_conflicts():
            self._open(name).alter.set_table_properties(dict(properties), raise_if_not_exists=False)

    def append(self, name: str, rows: ArrowRows, transaction: AppTransaction) -> None:
        """Append rows, once a transaction. Adds columns that the table lacks."""
        self._write(name, rows, transaction, mode="append")

    def replace_source(
        self, name: str, rows: ArrowRows, source: str, transaction: AppTransaction
    ) -> None:
        """Replace the rows of one source, once a transaction."""
        predicate = f"source = {literal(source)}"
        self._write(name, rows, transaction, mode="overwrite", predicate=predicate)

    def read(
        self, name: str, columns: Sequence[str], conditions: Sequence[Condition]
    ) -> Iterator[LedgerRow]:
        """Rows of a table, as a stream; none if there is no table."""
        with map_errors(f"{self._location(name)} is unreadable"), suppress(TableNotFoundError):
            yield from read_rows(self._open(name), columns, conditions)

    def count(
        self, name: str, columns: Sequence[str], conditions: Sequence[Condition], least: int
    ) -> Iterator[LedgerRow]:
        """How many rows have the same values in these columns; none if there is no table."""
        with map_errors(f"{self._location(name)} is unreadable"), suppress(TableNotFoundError):
            yield from count_rows(self._open(name), columns, conditions, least)

    def upkeep(self) -> DeltaRsUpkeep:
        """The upkeep of the same tables."""
        return DeltaRsUpkeep(self._open, self.root)

    def arrow(self, name: str) -> pa.Table:
        """A whole table, in memory. Raises `ConfigError` if there is none."""
        with map_errors(f"{self._location(name)} is unreadable"):
            try:
                return self._open(name).to_pyarrow_table()
            except TableNotFoundError as error:
                raise ConfigError(
                    f"There is no table {name} in the ledger at {self.root}",
                    advice="check ledger.root; the first sweep creates the ledger, and the first "
                    "command that changes messages its table `changes`",
                ) from error

    def _write(
        self, name: str, rows: ArrowRows, transaction: AppTransaction, **options: Any
    ) -> None:
        failure = f"{self._location(name)} could not be written"
        with map_errors(failure, "; the journal keeps the rows, and the next sweep tries again"):
            for tries_left in reversed(range(_CONFLICT_TRIES)):
                # A write to the path instead would create a lost table anew.
                table = self._open(name)
                if _has(table, transaction):
                    return
                # In the middle of a write delta-rs panics, and prints the stacks of its threads.
                locations.check_space(self.root, rows.size_bytes)
                try:
                    write_deltalake(
                        table,
                        pa.RecordBatchReader.from_batches(rows.schema, rows.batches()),
                        schema_mode="merge",
                        commit_properties=_commit(transaction),
                        **options,
                    )
                except CommitFailedError:
                    # Another process has committed, perhaps the same transaction.
                    if not tries_left:
                        raise
                else:
                    self._compact(table, name)
                    return

    def _compact(self, table: DeltaTable, name: str) -> None:
        """Compact the table where it is time. If that fails, the rows are written all the same."""
        if name not in _COMPACTED or table.version() % _COMPACT_EVERY:
            return
        with suppress(LedgerError, ValueError), map_errors(f"{name} could not be compacted"):
            # Much more than the files of a hundred small sweeps take.
            locations.check_space(self.root, 10 * _COMPACTED_BYTES)
            table.optimize.compact(target_size=_COMPACTED_BYTES, max_concurrent_tasks=1)

    def _open(self, name: str) -> DeltaTable:
        return DeltaTable(self._uri(name), storage_options=self._options())

    def _options(self) -> dict[str, str] | None:
        """Limits for a storage on the network. Credentials come from the environment."""
        if locations.local_folder(self.root) is not None:
            return None
        answer = f"{self.silence_seconds / 6:.0f}s"
        tries = {"max_retries": "1", "retry_timeout": f"{self.silence_seconds / 3:.0f}s"}
        return {"timeout": answer, "connect_timeout": answer, **tries}

    def _location(self, name: str) -> str:
        """Where the table is, for people."""
        folder = locations.local_folder(self.root)
        return str(folder / name) if folder else locations.table_path(self.root, name)

    def _uri(self, name: str) -> str:
        """The same for delta-rs."""
        folder = locations.local_folder(self.root)
        if folder is not None:
            return (folder.absolute() / name).as_uri()
        return locations.table_path(self.root, name)

    def _holds_data(self, name: str) -> bool:
        folder = locations.local_folder(self.root)
        if folder is not None:
            return locations.holds_data(folder / name)
        return _has_files(self._uri(name), self._options())


def _commit(transaction: AppTransaction) -> CommitProperties:
    # Spark takes a transaction without a time for one that has expired.
    now_ms = int(time.time() * 1_000)
    mark = Transaction(transaction.app_id, transaction.version, now_ms)
    return CommitProperties(app_transactions=[mark])


def _has(table: DeltaTable, transaction: AppTransaction) -> bool:
    seen = table.transaction_version(transaction.app_id)
    return seen is not None and seen >= transaction.version


def _has_files(uri: str, options: dict[str, str] | None) -> bool:
    from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 - local ledgers do without
    from pyarrow import fs  # noqa: PLC0415 - slow

    storage = fs.PyFileSystem(DeltaStorageHandler(uri, options))
    found = storage.get_file_info(fs.FileSelector("", allow_not_found=True))
    return any(not entry.base_name.startswith(("_", ".")) for entry in found)
