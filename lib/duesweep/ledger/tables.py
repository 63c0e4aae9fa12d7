"""The ledger's tables: creates them, and appends rows to them exactly once.

Delta records (txnAppId, txnVersion) with a commit, and silently ignores a version that it has seen.
So an append with the sweep's id happens once, however often it is tried:
https://docs.delta.io/latest/delta-batch.html#idempotent-table-writes-in-foreachbatch
"""

import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from uuid import UUID

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from duesweep.errors import LedgerError
from duesweep.ledger import locations
from duesweep.ledger.identity import (
    ID_PROPERTY,
    ROLE_PROPERTY,
    TABLES,
    Identity,
    identify,
)
from duesweep.ledger.schemas import SCHEMAS
from duesweep.ledger.table_facts import LedgerReader
from duesweep.spark_errors import SPARK_ERRORS, is_conflict, is_transient, sentence

TRANSACTION_RETENTION_DAYS = 90
# Longer than settle relies on, since two clocks are compared.
_RETENTION = f"interval {TRANSACTION_RETENTION_DAYS + 10} days"
# Statistics only of columns by which a reader can skip files. For random ids they only cost time.
_STATISTICS = "delta.dataSkippingStatsColumns"
_SKIPPED_BY = "sweep_id,source,due,dispatched_at"
_CONFLICT_TRIES = 5
# Other readers cannot read Spark's default, INT96, before 1677 and after 2262.
TIMESTAMP_TYPE = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")


@dataclass(frozen=True, slots=True)
class Ledger:
    """The four tables under one root: a path (with a `/` or a scheme) or a catalog schema."""

    spark: SparkSession
    root: str

    def read(self) -> Identity:
        """Find out which ledger is under the root.

        Raises `ConfigError` for an unsafe root and for tables of something else, `LedgerError`
        where the root cannot be read.
        """
        reader = LedgerReader(self.spark, self.root)
        reader.check_log_store()
        # In parallel: each read mostly waits for a log.
        with ThreadPoolExecutor(len(TABLES)) as pool:
            return identify(pool.map(reader.read_facts, TABLES))

    def create(self) -> UUID:
        """Create the tables that are missing. Returns the ledger's id, which another process
        may have created at the same time. If this dies halfway, the next call completes it.
        """
        self.check_writable()
        with self.lock_for_writing():
            first, *others = TABLES
            identity = self._read_creatable()
            if first in identity.missing:
                self._create(first, identity.ledger_id or uuid.uuid4())
                identity = self._read_creatable()
            if identity.ledger_id is None:
                raise LedgerError(
                    f"The ledger at {self.root} was created, but cannot be found there",
                    advice="check that all processes see the same ledger.root",
                    transient=False,
                )
            for name in others:
                if name in identity.missing:
                    self._create(name, identity.ledger_id)
        return identity.ledger_id

    def mark(self, identity: Identity) -> None:
        """Give the ledger's id to tables of older versions, which gave it to `tombstones` only."""
        with self.lock_for_writing():
            for name in identity.unmarked:
                listed = _format_properties(_id_properties(name, identity.ledger_id))
                self._run(
                    f"ALTER TABLE {self.table(name)} SET TBLPROPERTIES ({listed})",
                    f"{self.table(name)} could not be marked as the ledger's",
                )

    def check_writable(self) -> None:
        """Raise where a local root cannot be written. For other roots the first write raises."""
        locations.check_writable(self.root)

    def lock_for_writing(self) -> AbstractContextManager[None]:
        """Hold the lock of a local root; see `locations.lock_for_writing`."""
        return locations.lock_for_writing(self.root)

    def table(self, name: str) -> str:
        """The table's name for SQL and `spark.read.table`."""
        return locations.table_name(self.root, name)

    def append(self, name: str, rows_df: DataFrame, *, sweep_id: UUID, version: int = 1) -> None:
        """Append one piece of a sweep's rows, once. `version` counts the pieces from 1. Columns
        that the table lacks are added to it.
        """
        self._write(name, (sweep_id, version), lambda: rows_df.write.mode("append"))

    def replace_source(self, name: str, rows_df: DataFrame, source: str, *, sweep_id: UUID) -> None:
        """Replace the rows of one source, once."""
        escaped = source.replace("\\", "\\\\").replace("'", "\\'")
        self._write(
            name,
            (sweep_id, 1),
            lambda: rows_df.write.mode("overwrite").option("replaceWhere", f"source = '{escaped}'"),
        )

    def _write(
        self, name: str, transaction: tuple[UUID, int], writer: Callable[[], DataFrameWriter]
    ) -> None:
        # Delta reads this from the session only. Some platforms do not allow to set it.
        with suppress(*SPARK_ERRORS):
            self.spark.conf.set(*TIMESTAMP_TYPE)
        for tries_left in reversed(range(_CONFLICT_TRIES)):
            try:
                write = writer().format("delta").option("mergeSchema", "true")
                write = write.option("txnAppId", str(transaction[0]))
                write = write.option("txnVersion", str(transaction[1]))
                if locations.is_path(self.root):
                    write.save(locations.table_path(self.root, name))
                else:
                    write.saveAsTable(self.table(name))
            except SPARK_ERRORS as error:
                # Another process committed at the same time. In the next try Delta either ignores
                # the append, because its transaction is recorded, or does it.
                if tries_left and is_conflict(error):
                    continue
                raise LedgerError(
                    f"{self.table(name)} could not be written: {sentence(error)}; the journal "
                    "keeps the rows, and the next sweep tries again",
                    transient=is_transient(error),
                ) from error
            return

    def _read_creatable(self) -> Identity:
        identity = self.read()
        identity.refuse_stray()
        return identity

    def _create(self, name: str, ledger_id: UUID) -> None:
        folder = locations.local_folder(self.root)
        if folder is not None:
            locations.clear_leftovers(folder / name)
        properties = {"delta.setTransactionRetentionDuration": _RETENTION}
        properties |= _id_properties(name, ledger_id)
        if name == "tombstones":
            properties[_STATISTICS] = _SKIPPED_BY
        columns = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in SCHEMAS[name])
        self._run(
            f"CREATE TABLE IF NOT EXISTS {self.table(name)} ({columns}) USING delta "
            f"TBLPROPERTIES ({_format_properties(properties)})",
            f"{self.table(name)} could not be created",
        )

    def _run(self, statement: str, failure: str) -> None:
        try:
            self.spark.sql(statement)
        except SPARK_ERRORS as error:
            # In a conflict, another process has done the same.
            if not is_conflict(error):
                raise LedgerError(
                    f"{failure}: {sentence(error)}",
                    advice="check ledger.root and the right to write there",
                    transient=is_transient(error),
                ) from error


def _id_properties(name: str, ledger_id: UUID | None) -> Mapping[str, str]:
    return {ID_PROPERTY: str(ledger_id), ROLE_PROPERTY: name}


def _format_properties(properties: Mapping[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
