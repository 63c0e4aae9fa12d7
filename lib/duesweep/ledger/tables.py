"""The ledger's tables: where they are, whose they are, and appends that count once.

Delta records (txnAppId, txnVersion) with a commit and silently ignores a version that it has seen,
so an append with the sweep's id happens once, however often it is tried:
https://docs.delta.io/latest/delta-batch.html#idempotent-table-writes-in-foreachbatch
"""

import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from uuid import UUID

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from duesweep.errors import ConfigError, LedgerError
from duesweep.ledger import locations
from duesweep.ledger.identity import (
    ID_PROPERTY,
    ROLE_PROPERTY,
    TABLES,
    Identity,
    LedgerTableFacts,
    identify,
)
from duesweep.ledger.schemas import SCHEMAS
from duesweep.spark_errors import SPARK_ERRORS, is_conflict, is_transient, sentence

TRANSACTION_RETENTION_DAYS = 90
# Longer than settle relies on: the two clocks are not one.
_RETENTION = f"interval {TRANSACTION_RETENTION_DAYS + 10} days"
# Of the columns by which a reader can skip files; of random ids they would only cost time.
_STATISTICS = "delta.dataSkippingStatsColumns"
_SKIPPED_BY = "sweep_id,source,due,dispatched_at"
_CONFLICT_TRIES = 5
_S3_LOG_STORE = "spark.delta.logStore.{scheme}.impl"
# Spark's default, INT96, is beyond other readers' reach before 1677 and after 2262.
TIMESTAMP_TYPE = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")


@dataclass(frozen=True, slots=True)
class Ledger:
    """The four tables under one root: a path (with a `/` or a scheme) or a catalog schema."""

    spark: SparkSession
    root: str

    def read(self) -> Identity:
        """Which ledger there is.

        Raises `ConfigError` for an unsafe root or tables that are another's, `LedgerError` where
        the root cannot be read.
        """
        self._check_log_store()
        # Each waits mostly, for a log to be listed and read.
        with ThreadPoolExecutor(len(TABLES)) as pool:
            return identify(pool.map(self._facts, TABLES))

    def create(self) -> UUID:
        """Create the tables that are missing; the ledger's id, which is another's where that was
        faster. May die anywhere: whoever runs it again completes it.
        """
        self.check_writable()
        with self.writing():
            first, *others = TABLES
            identity = self._creatable()
            if first in identity.missing:
                self._create(first, identity.ledger_id or uuid.uuid4())
                identity = self._creatable()
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
        """Give the ledger's id to tables of a version that gave it to `tombstones` only."""
        with self.writing():
            for name in identity.unmarked:
                listed = _listed(_marks(name, identity.ledger_id))
                self._run(
                    f"ALTER TABLE {self.table(name)} SET TBLPROPERTIES ({listed})",
                    f"{self.table(name)} could not be marked as the ledger's",
                )

    def check_writable(self) -> None:
        """Raise where a local root cannot be written; others say so themselves."""
        locations.check_writable(self.root)

    def writing(self) -> AbstractContextManager[None]:
        """Be the only writer where Delta itself cannot see to it: under a local root."""
        return locations.writing(self.root)

    def table(self, name: str) -> str:
        """The table as SQL and `spark.read.table` name it."""
        if locations.is_path(self.root):
            path = self._path(name).replace("`", "``")
            return f"delta.`{path}`"
        return ".".join(f"`{part}`" for part in (*self.root.split("."), name))

    def append(self, name: str, rows_df: DataFrame, *, sweep_id: UUID, version: int = 1) -> None:
        """Append a piece of a group's rows, once; pieces count up from 1. Columns that the table
        lacks are added to it.
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
        # Delta asks the session, and no option of the writer. Some platforms keep it to themselves.
        with suppress(*SPARK_ERRORS):
            self.spark.conf.set(*TIMESTAMP_TYPE)
        for tries_left in reversed(range(_CONFLICT_TRIES)):
            try:
                write = writer().format("delta").option("mergeSchema", "true")
                write = write.option("txnAppId", str(transaction[0]))
                write = write.option("txnVersion", str(transaction[1]))
                if locations.is_path(self.root):
                    write.save(self._path(name))
                else:
                    write.saveAsTable(self.table(name))
            except SPARK_ERRORS as error:
                # Somebody else's commit came between. Tried again, the append either finds its own
                # transaction recorded, and is ignored, or goes through.
                if tries_left and is_conflict(error):
                    continue
                raise LedgerError(
                    f"{self.table(name)} could not be written: {sentence(error)}; the journal "
                    "keeps the rows, and the next sweep tries again",
                    transient=is_transient(error),
                ) from error
            return

    def _facts(self, name: str) -> LedgerTableFacts:
        location = self.table(name)
        try:
            rows = self.spark.sql(f"SHOW TBLPROPERTIES {location}").collect()
            found = {row["key"]: row["value"] for row in rows}
            columns = () if ID_PROPERTY in found else self.spark.read.table(location).columns
        except AnalysisException as error:
            if "SCHEMA_NOT_FOUND" in str(error):
                raise ConfigError(
                    f"ledger.root is {self.root!r}, and there is no such catalog schema",
                    advice="create it, or write a path with a slash, as in ./ledger",
                ) from error
            if not _is_absence(error):
                raise self._unreadable(error) from error
            return LedgerTableFacts(name, location, holds_data=self._holds_data(name))
        except SPARK_ERRORS as error:
            raise self._unreadable(error) from error
        return LedgerTableFacts(name, location, found, columns=frozenset(columns))

    def _holds_data(self, name: str) -> bool:
        """Whether data lies where a table should be; a catalog sees to that itself."""
        if not locations.is_path(self.root):
            return False
        folder = locations.local_folder(self._path(name))
        if folder is not None:
            return locations.holds_data(folder)
        try:
            # Looks for a file to take the schema from, and reads no more.
            self.spark.read.format("parquet").load(self._path(name))
        except AnalysisException:
            return False
        except SPARK_ERRORS as error:
            raise self._unreadable(error) from error
        return True

    def _creatable(self) -> Identity:
        identity = self.read()
        identity.refuse_stray()
        return identity

    def _create(self, name: str, ledger_id: UUID) -> None:
        folder = locations.local_folder(self.root)
        if folder is not None:
            locations.clear_leftovers(folder / name)
        properties = {"delta.setTransactionRetentionDuration": _RETENTION}
        properties |= _marks(name, ledger_id)
        if name == "tombstones":
            properties[_STATISTICS] = _SKIPPED_BY
        columns = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in SCHEMAS[name])
        self._run(
            f"CREATE TABLE IF NOT EXISTS {self.table(name)} ({columns}) USING delta "
            f"TBLPROPERTIES ({_listed(properties)})",
            f"{self.table(name)} could not be created",
        )

    def _run(self, statement: str, failure: str) -> None:
        try:
            self.spark.sql(statement)
        except SPARK_ERRORS as error:
            # Who lost a race finds what the other one did.
            if not is_conflict(error):
                raise LedgerError(
                    f"{failure}: {sentence(error)}",
                    advice="check ledger.root and the right to write there",
                    transient=is_transient(error),
                ) from error

    def _unreadable(self, error: Exception) -> LedgerError:
        return LedgerError(
            f"The ledger at {self.root} is unreadable: {sentence(error)}",
            advice="check ledger.root and the right to read there",
            transient=is_transient(error),
        )

    def _path(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def _check_log_store(self) -> None:
        scheme = locations.scheme(self.root)
        if scheme not in {"s3", "s3a", "s3n"}:
            return
        setting = _S3_LOG_STORE.format(scheme=scheme)
        on_databricks = self.spark.conf.get("spark.databricks.clusterUsageTags.clusterId", None)
        if on_databricks is None and self.spark.conf.get(setting, None) is None:
            raise ConfigError(
                f"Two sweeps could overwrite each other's commits under {self.root}",
                advice=(
                    f"set {setting} to a multi-writer log store "
                    "(io.delta.storage.S3DynamoDBLogStore)"
                ),
            )


def _marks(name: str, ledger_id: UUID | None) -> Mapping[str, str]:
    return {ID_PROPERTY: str(ledger_id), ROLE_PROPERTY: name}


def _listed(properties: Mapping[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())


def _is_absence(error: Exception) -> bool:
    conditions = ("DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND")
    return any(condition in str(error) for condition in (*conditions, "PATH_NOT_FOUND"))
