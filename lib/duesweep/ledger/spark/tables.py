"""The ledger's tables in a Spark session, by delta-spark.

Delta records (txnAppId, txnVersion) with a commit and silently ignores a version that it has seen:
https://docs.delta.io/latest/delta-batch.html#idempotent-table-writes-in-foreachbatch
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from duesweep.errors import ConfigError, LedgerError, raise_interruption
from duesweep.ledger import locations
from duesweep.ledger.base import AppTransaction
from duesweep.ledger.identity import ID_PROPERTY, LedgerTableFacts
from duesweep.ledger.spark.rows import SparkSweepRows
from duesweep.ledger.spark.types import SPARK_SCHEMAS
from duesweep.spark_errors import SPARK_ERRORS, is_conflict, is_transient, sentence
from duesweep.stores.base import Journal

_CONFLICT_TRIES = 5
_S3_LOG_STORE = "spark.delta.logStore.{scheme}.impl"
# Spark's default, INT96, is beyond other readers' reach before 1677 and after 2262.
TIMESTAMP_TYPE = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")


@dataclass(frozen=True, slots=True)
class SparkTables:
    """The tables under a path or in a catalog schema."""

    spark: SparkSession
    root: str

    def table(self, name: str) -> str:
        """The table as SQL and `spark.read.table` name it."""
        if locations.is_path(self.root):
            path = self._path(name).replace("`", "``")
            return f"delta.`{path}`"
        return ".".join(f"`{part}`" for part in (*self.root.split("."), name))

    def rows(self, journal: Journal, sweep_id: UUID) -> SparkSweepRows:
        """DataFrames; what was exhausted is read by the executors."""
        return SparkSweepRows(self.spark, journal, sweep_id)

    def append(self, name: str, rows: DataFrame, transaction: AppTransaction) -> None:
        """Append rows, once a transaction. Adds columns that the table lacks."""
        self._write(name, transaction, lambda: rows.write.mode("append"))

    def replace_source(
        self, name: str, rows: DataFrame, source: str, transaction: AppTransaction
    ) -> None:
        """Replace the rows of one source, once a transaction."""
        escaped = source.replace("\\", "\\\\").replace("'", "\\'")
        self._write(
            name,
            transaction,
            lambda: rows.write.mode("overwrite").option("replaceWhere", f"source = '{escaped}'"),
        )

    def facts(self, name: str) -> LedgerTableFacts:
        """What is at the table's location."""
        self._check_log_store()
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

    def create(self, name: str, properties: Mapping[str, str]) -> None:
        """Create the table, unless it is there."""
        fields = SPARK_SCHEMAS[name]
        columns = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in fields)
        self._run(
            f"CREATE TABLE IF NOT EXISTS {self.table(name)} ({columns}) USING delta "
            f"TBLPROPERTIES ({_properties_text(properties)})",
            f"{self.table(name)} could not be created",
        )

    def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        """Add properties to a table."""
        self._run(
            f"ALTER TABLE {self.table(name)} SET TBLPROPERTIES ({_properties_text(properties)})",
            f"{self.table(name)} could not be marked as the ledger's",
        )

    def _write(
        self, name: str, transaction: AppTransaction, writer: Callable[[], DataFrameWriter]
    ) -> None:
        # Delta asks the session, and no option of the writer. Some platforms keep it to themselves.
        with suppress(*SPARK_ERRORS):
            self.spark.conf.set(*TIMESTAMP_TYPE)
        for tries_left in reversed(range(_CONFLICT_TRIES)):
            try:
                write = writer().format("delta").option("mergeSchema", "true")
                write = write.option("txnAppId", str(transaction.sweep_id))
                write = write.option("txnVersion", str(transaction.version))
                if locations.is_path(self.root):
                    write.save(self._path(name))
                else:
                    write.saveAsTable(self.table(name))
            except SPARK_ERRORS as error:
                # Somebody else's commit came between. Tried again, the append either finds its own
                # transaction recorded, and is ignored, or goes through.
                if tries_left and is_conflict(error):
                    continue
                raise_interruption(error)
                raise LedgerError(
                    f"{self.table(name)} could not be written: {sentence(error)}; the journal "
                    "keeps the rows, and the next sweep tries again",
                    transient=is_transient(error),
                ) from error
            return

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


def _properties_text(properties: Mapping[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())


def _is_absence(error: Exception) -> bool:
    conditions = ("DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND")
    return any(condition in str(error) for condition in (*conditions, "PATH_NOT_FOUND"))
