"""The ledger's tables in a Spark session, by delta-spark.

Delta records (txnAppId, txnVersion) with a commit and silently ignores a version that it has seen:
https://docs.delta.io/latest/delta-batch.html#idempotent-table-writes-in-foreachbatch
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from uuid import UUID

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from duesweep.drivers.spark import SPARK_ERRORS, is_conflict, is_transient, sentence
from duesweep.errors import LedgerError, raise_interruption
from duesweep.ledger import locations
from duesweep.ledger.base import AppTransaction
from duesweep.ledger.identity import LedgerTableFacts
from duesweep.ledger.reading import Condition, LedgerRow
from duesweep.ledger.spark.facts import LedgerReader, is_absence
from duesweep.ledger.spark.quoting import literal
from duesweep.ledger.spark.reading import count_rows, read_rows
from duesweep.ledger.spark.rows import SparkSweepRows
from duesweep.ledger.spark.types import SPARK_SCHEMAS
from duesweep.ledger.spark.upkeep import SparkUpkeep
from duesweep.stores.journal import Journal

_CONFLICT_TRIES = 5
# Other readers cannot read Spark's default, INT96, before 1677 and after 2262.
TIMESTAMP_TYPE = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")


@dataclass(frozen=True, slots=True)
class SparkTables:
    """The tables under a path or in a catalog schema."""

    spark: SparkSession
    root: str

    def table(self, name: str) -> str:
        """The table as SQL and `spark.read.table` name it."""
        return locations.table_name(self.root, name)

    def rows(self, journal: Journal, sweep_id: UUID) -> SparkSweepRows:
        """DataFrames; what was exhausted is read by the executors."""
        is_local = locations.local_folder(self.root) is not None
        return SparkSweepRows(self.spark, journal, sweep_id, reads_first=is_local)

    def append(self, name: str, rows: DataFrame, transaction: AppTransaction) -> None:
        """Append rows, once a transaction. Adds columns that the table lacks."""
        self._write(name, transaction, lambda: rows.write.mode("append"))

    def replace_source(
        self, name: str, rows: DataFrame, source: str, transaction: AppTransaction
    ) -> None:
        """Replace the rows of one source, once a transaction."""
        condition = f"source = {literal(source)}"
        self._write(
            name,
            transaction,
            lambda: rows.write.mode("overwrite").option("replaceWhere", condition),
        )

    def facts(self, name: str) -> LedgerTableFacts:
        """What is at the table's location."""
        reader = LedgerReader(self.spark, self.root)
        reader.check_log_store()
        return reader.read_facts(name)

    def create(self, name: str, properties: Mapping[str, str]) -> None:
        """Create the table, unless it is there."""
        fields = SPARK_SCHEMAS[name]
        columns = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in fields)
        self._run(
            f"CREATE TABLE IF NOT EXISTS {self.table(name)} ({columns}) USING delta "
            f"TBLPROPERTIES ({_format_properties(properties)})",
            f"{self.table(name)} could not be created",
        )

    def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        """Add properties to a table."""
        self._run(
            f"ALTER TABLE {self.table(name)} SET TBLPROPERTIES ({_format_properties(properties)})",
            f"{self.table(name)} could not be marked as the ledger's",
        )

    def read(
        self, name: str, columns: Sequence[str], conditions: Sequence[Condition]
    ) -> Iterator[LedgerRow]:
        """Rows of a table, as a stream; none if there is no table."""
        with self._reading(name):
            table_df = self.spark.read.table(self.table(name))
            yield from read_rows(table_df, name, columns, conditions)

    def count(
        self, name: str, columns: Sequence[str], conditions: Sequence[Condition], least: int
    ) -> Iterator[LedgerRow]:
        """How many rows have the same values in these columns; none if there is no table."""
        with self._reading(name):
            table_df = self.spark.read.table(self.table(name))
            yield from count_rows(table_df, name, columns, conditions, least=least)

    def upkeep(self) -> SparkUpkeep:
        """The upkeep of the same tables."""
        return SparkUpkeep(self.spark, self.root)

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        """Map the errors of a read; that there is no table is none."""
        try:
            yield
        except SPARK_ERRORS as error:
            if is_absence(error):
                return
            raise_interruption(error)
            raise LedgerError(
                f"{self.table(name)} is unreadable: {sentence(error)}",
                advice="check ledger.root and the right to read there",
                transient=is_transient(error),
            ) from error

    def _write(
        self, name: str, transaction: AppTransaction, writer: Callable[[], DataFrameWriter]
    ) -> None:
        # Delta reads this from the session only. Some platforms do not allow to set it.
        with suppress(*SPARK_ERRORS):
            self.spark.conf.set(*TIMESTAMP_TYPE)
        for tries_left in reversed(range(_CONFLICT_TRIES)):
            try:
                write = writer().format("delta").option("mergeSchema", "true")
                write = write.option("txnAppId", transaction.app_id)
                write = write.option("txnVersion", str(transaction.version))
                if locations.is_path(self.root):
                    write.save(locations.table_path(self.root, name))
                else:
                    write.saveAsTable(self.table(name))
            except SPARK_ERRORS as error:
                # Another process committed at the same time. In the next try Delta either ignores
                # the append, because its transaction is recorded, or does it.
                if tries_left and is_conflict(error):
                    continue
                raise_interruption(error)
                raise LedgerError(
                    f"{self.table(name)} could not be written: {sentence(error)}; the journal "
                    "keeps the rows, and the next sweep tries again",
                    transient=is_transient(error),
                ) from error
            return

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


def _format_properties(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items())
