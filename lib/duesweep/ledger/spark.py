"""The ledger's tables in a Spark session, by delta-spark: for catalog schemas, and wherever a
session is there.

Delta records (txnAppId, txnVersion) with a commit and silently ignores a version that it has seen:
https://docs.delta.io/latest/delta-batch.html#idempotent-table-writes-in-foreachbatch
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from duesweep.core.errors import ConfigError, LedgerError, raise_interruption
from duesweep.core.world import instant_of, micros
from duesweep.drivers.spark import (
    SPARK_ERRORS,
    cause,
    is_conflict,
)
from duesweep.ledger.base import (
    ENCLOSED_TYPES,
    MICROSECONDS,
    Among,
    Asked,
    Condition,
    LedgerPiece,
    LedgerRow,
    LedgerTableFacts,
    LedgerTables,
    Named,
    Rows,
    TableSize,
    holds_data,
    is_path,
    local_folder,
    nearest_folder,
    questions,
    root_scheme,
    schema_name,
    table_name,
    table_path,
)
from duesweep.ledger.durable import find_damage
from duesweep.ledger.rows import SCHEMAS, comments

_TYPES: dict[pa.DataType, DataType] = {
    pa.string(): StringType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float64(): DoubleType(),
    pa.binary(): BinaryType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
    pa.map_(pa.string(), pa.string()): MapType(StringType(), StringType()),
}
SPARK_SCHEMAS = {
    name: StructType([StructField(field.name, _TYPES[field.type]) for field in schema])
    for name, schema in SCHEMAS.items()
}

_CONFLICT_TRIES = 5
_ROWS_PER_FILE = 100_000
# Other readers cannot read Spark's default, INT96, before 1677 and after 2262.
TIMESTAMP_TYPE = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
# How instants before 1900 are written, which a Due may be: Spark 3's default refuses them.
_OLD_INSTANTS, _REFUSED = "spark.sql.parquet.datetimeRebaseModeInWrite", "EXCEPTION"
_S3_LOG_STORE = "spark.delta.logStore.{scheme}.impl"
# On S3, which has no rename, they keep commits apart within one driver at most.
_SINGLE_WRITER_STORES = {
    "S3SingleDriverLogStore",
    *("AzureLogStore", "GCSLogStore", "HDFSLogStore", "LocalLogStore"),
}
_ABSENCE = (
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_TABLE_NOT_FOUND",
    "TABLE_OR_VIEW_NOT_FOUND",
    "PATH_NOT_FOUND",
)
_CHECK_ROOT = (
    "check ledger.root, and the right to read and write there; all executors have to see a folder "
    'that Spark writes, else set ledger.writer = "delta-rs"'
)
# More values than that are joined: a plan with that number of literals takes long.
_MOST_LITERALS = 1_000

# SQL for the braces of statements that only Spark understands.
_SQL = {
    **{"last_begin": "max_by(", "last_by": ", struct(", "last_end": "))"},
    **{"micros_begin": "unix_micros(", "micros_end": ")"},
    # All rows at once.
    **{"part": "0", "parts": "1"},
}

_HOURS = 24
# Delta refuses fewer days than these, unless the check is off.
_CHECKED_DAYS = 7
_KEPT, _KEPT_BY_DEFAULT = "delta.deletedFileRetentionDuration", "interval 7 days"
# VACUUM would list a folder in 10,000 tasks.
_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"

_Done = TypeVar("_Done")


@dataclass(frozen=True, slots=True)
class SparkTables(LedgerTables):
    """The tables under a path or in a catalog schema."""

    spark: SparkSession
    root: str

    def table(self, name: str) -> str:
        """The table as SQL and `spark.read.table` name it."""
        return table_name(self.root, name)

    def facts(self, name: str) -> LedgerTableFacts:
        """Raises `ConfigError` also where the catalog schema does not exist."""
        self._check_log_store()
        if not is_path(self.root):
            # Asked first: for a statement that fails, Spark logs a long Java stack. An error of
            # this question is reported by the statement.
            with suppress(*SPARK_ERRORS):
                if not self.spark.catalog.databaseExists(schema_name(self.root)):
                    raise self._no_schema()
        location = self.table(name)
        try:
            return LedgerTableFacts(name, location, self._properties(name))
        except SPARK_ERRORS as error:
            if isinstance(error, AnalysisException) and "SCHEMA_NOT_FOUND" in str(error):
                raise self._no_schema() from error
            if not _is_absence(error):
                raise self._fault(name, "is unreadable", error) from error
            return LedgerTableFacts(name, location, holds_data=self._holds_data(name))

    def create(self, name: str, properties: Mapping[str, str]) -> None:
        fields = SPARK_SCHEMAS[name]
        texts = {column: _literal(text) for column, text in comments(name).items()}
        columns = ", ".join(
            f"`{f.name}` {_sql_type(f.dataType)} COMMENT {texts[f.name]}" for f in fields
        )
        self._define(
            name,
            f"CREATE TABLE IF NOT EXISTS {self.table(name)} ({columns}) USING delta "
            f"COMMENT {texts['']} TBLPROPERTIES ({_format_properties(properties)})",
            "could not be created",
        )

    def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        self._define(
            name,
            f"ALTER TABLE {self.table(name)} SET TBLPROPERTIES ({_format_properties(properties)})",
            "could not be marked as the ledger's",
        )

    def write(self, pieces: Sequence[LedgerPiece]) -> None:
        """Each in a commit of its own: a commit of Spark's has one transaction."""
        for piece in pieces:
            if piece.replaces is None:
                self._write(piece, mode="append")
            else:
                replaced = f"source = {_literal(piece.replaces)}"
                self._write(piece, mode="overwrite", replaceWhere=replaced)

    def read(
        self, name: str, columns: Sequence[str], conditions: Sequence[Condition]
    ) -> Iterator[LedgerRow]:
        """One partition is in memory at a time."""
        with self._reading(name):
            chosen_df = _choose(self.spark.read.table(self.table(name)), conditions)
            yield from _stream(chosen_df, columns)

    def ask(self, question: str, tables: Asked, **values: str | int) -> Iterator[LedgerRow]:
        text = questions()[question]
        for name, sql in _SQL.items():
            text = text.replace(f"{{{name}}}", sql)
        with self._reading(*tables):
            given: dict[str, Any] = {name: self._rows(name, fit) for name, fit in tables.items()}
            found_df = self.spark.sql(text, **given | values)
            yield from _stream(found_df, found_df.columns)

    def _rows(self, name: str, conditions: Sequence[Condition]) -> DataFrame:
        """The rows that fit; none if there is no table."""
        with self._reading(name):
            table_df = self.spark.read.table(self.table(name))
            # Spark Connect asks for the table here.
            if table_df.schema:
                return _choose(table_df, conditions)
        return self.spark.createDataFrame([], SPARK_SCHEMAS[name])

    def has(self, name: str, sweep_id: UUID) -> bool:
        return any(
            True for _ in self.read(name, ["sweep_id"], [Among("sweep_id", [str(sweep_id)])])
        )

    def size(self, name: str) -> TableSize | None:
        row = None
        with self._reading(name):
            row = self.spark.sql(f"DESCRIBE DETAIL {self.table(name)}").first()
        # Of a path without a table, it says that this is no Delta table.
        if row is None or row.format != "delta":
            return None
        return TableSize(row.numFiles, row.sizeInBytes)

    def remove(self, name: str, source: str, column: str, before: datetime) -> int:
        is_old = f"source = {_literal(source)} AND `{column}` < timestamp_micros({micros(before)})"
        text = f"DELETE FROM {self.table(name)} WHERE {is_old}"  # noqa: S608 - a quoted table
        (row,) = self._run(name, "cut", text)
        return int(row[0])

    def compact(self, name: str) -> int:
        (row,) = self._run(name, "compacted", f"OPTIMIZE {self.table(name)}")
        return int(row.metrics.numFilesRemoved)

    def try_out(self, trial: str) -> None:
        folder = local_folder(self.root)
        root = self.root if folder is None else f"{nearest_folder(folder)}/"
        table = table_name(root, trial)
        try:
            self._run(trial, "created", f"CREATE TABLE {table} USING delta AS SELECT 1 AS number")
            self._run(trial, "read", f"SELECT number FROM {table}")  # noqa: S608 - a quoted table
        finally:
            _remove(self.spark, root, trial)

    def vacuum(self, name: str, days: int) -> None:
        """Delta removes expired log entries by itself, where it writes a checkpoint."""
        if days:
            self._keep_files(name, days)
        settings = {_LISTING_TASKS: "4"}
        if days < _CHECKED_DAYS:
            settings[_CHECK] = "false"
        with self._set(settings):
            self._run(name, "cleaned", f"VACUUM {self.table(name)} RETAIN {days * _HOURS} HOURS")

    def _keep_files(self, name: str, days: int) -> None:
        """Delta's VACUUM goes by a property of the table, and ignores what RETAIN says, unless that
        is 0.
        """
        wanted = f"interval {days} days"
        kept = self._commit(name, "cleaned", lambda: self._properties(name))
        if kept.get(_KEPT, _KEPT_BY_DEFAULT) != wanted:
            change = f"ALTER TABLE {self.table(name)} SET TBLPROPERTIES ('{_KEPT}' = '{wanted}')"
            self._run(name, "cleaned", change)

    def _write(self, piece: LedgerPiece, mode: str, **options: str) -> None:
        name = piece.table
        # Delta reads these from the session only. Some platforms do not allow to set them.
        with suppress(*SPARK_ERRORS):
            self.spark.conf.set(*TIMESTAMP_TYPE)
            if self.spark.conf.get(_OLD_INSTANTS) == _REFUSED:
                self.spark.conf.set(_OLD_INSTANTS, "CORRECTED")
        options |= {"mergeSchema": "true"}
        options |= {"txnAppId": piece.app_id, "txnVersion": str(piece.version)}

        def write() -> None:
            # In a second try Delta either ignores the append, because its transaction is recorded,
            # or does it.
            writer = self._frame(name, piece.rows).write.format("delta").mode(mode)
            if is_path(self.root):
                writer.options(**options).save(table_path(self.root, name))
            else:
                writer.options(**options).saveAsTable(self.table(name))

        kept = "; the journal keeps the rows, and the next sweep tries again"
        self._commit(name, "written", write, consequence=kept)

    def _frame(self, name: str, rows: Rows) -> DataFrame:
        """Arrow goes through the driver, and no Python worker has to start to decode it."""
        # PySpark takes no table without a batch.
        batches = [*rows.batches()] or SCHEMAS[name].empty_table().to_batches()
        table = pa.Table.from_batches(batches, SCHEMAS[name])
        rows_df = self.spark.createDataFrame(table, SPARK_SCHEMAS[name])
        return rows_df.coalesce(max(1, table.num_rows // _ROWS_PER_FILE))

    def _run(self, name: str, what: str, statement: str) -> list[Any]:
        return self._commit(name, what, lambda: self.spark.sql(statement).collect())

    def _commit(
        self, name: str, what: str, act: Callable[[], _Done], *, consequence: str = ""
    ) -> _Done:
        """Act, and again after each commit of another process."""
        for tries_left in reversed(range(_CONFLICT_TRIES)):
            try:
                return act()
            except SPARK_ERRORS as error:
                if not tries_left or not is_conflict(error):
                    failure = f"could not be {what}"
                    raise self._fault(name, failure, error, consequence) from error
        raise AssertionError("unreachable")

    def _define(self, name: str, statement: str, failure: str) -> None:
        try:
            self.spark.sql(statement)
        except SPARK_ERRORS as error:
            # In a conflict, another process has done the same.
            if not is_conflict(error):
                raise self._fault(name, failure, error) from error

    @contextmanager
    def _reading(self, *names: str) -> Iterator[None]:
        """Map the errors of a read; that there is no table is none."""
        try:
            yield
        except SPARK_ERRORS as error:
            if not _is_absence(error):
                raise self._fault(names[0], "is unreadable", error, others=names) from error

    def _fault(
        self,
        name: str,
        failure: str,
        error: Exception,
        consequence: str = "",
        *,
        others: Iterable[str] = (),
    ) -> LedgerError:
        """The error that names the table, and the damaged file if there is one, of this table or
        the others.
        """
        raise_interruption(error)
        text, may_pass, advice = cause(error)
        folder = local_folder(self.root)
        if (
            folder is not None
            and may_pass is None
            # Of a trial no backup has a file.
            and name in SCHEMAS
            and (damage := find_damage(folder, (name, *others)))
        ):
            name, problem = damage
            text, advice = problem.text, problem.advice
        return LedgerError(
            f"{self.table(name)} {failure}: {text}{consequence}",
            advice=advice or _CHECK_ROOT,
            transient=bool(may_pass),
        )

    def _properties(self, name: str) -> dict[str, str]:
        rows = self.spark.sql(f"SHOW TBLPROPERTIES {self.table(name)}").collect()
        return {row["key"]: row["value"] for row in rows}

    def _no_schema(self) -> ConfigError:
        return ConfigError(
            f"ledger.root is {self.root!r}, but there is no such catalog schema",
            advice=f"write ./{self.root} for a folder, or create the schema",
        )

    def _check_log_store(self) -> None:
        """Raise `ConfigError` for a root on S3 where a writer could overwrite another's commits."""
        scheme = root_scheme(self.root)
        if scheme not in {"s3", "s3a", "s3n"}:
            return
        setting = _S3_LOG_STORE.format(scheme=scheme)
        on_databricks = self.spark.conf.get("spark.databricks.clusterUsageTags.clusterId", None)
        given = self.spark.conf.get(setting, None)
        name = (given or "").rpartition(".")[2]
        if on_databricks is None and (given is None or name in _SINGLE_WRITER_STORES):
            by = "" if given is None else f" with the log store {name}"
            raise ConfigError(
                f"Two sweeps could overwrite each other's commits under {self.root}{by}",
                advice=(
                    'set ledger.writer = "delta-rs", with credentials as in AWS_ACCESS_KEY_ID in '
                    f"the environment; or set {setting} to a log store for several writers, such "
                    "as io.delta.storage.S3DynamoDBLogStore, and add its jar"
                ),
            )

    def _holds_data(self, name: str) -> bool:
        """Whether there are data files where a table should be. A catalog checks that itself."""
        if not is_path(self.root):
            return False
        path = table_path(self.root, name)
        folder = local_folder(path)
        try:
            if folder is not None:
                return holds_data(folder)
            # Spark looks for one file to take the schema from, and reads no more.
            self.spark.read.format("parquet").load(path)
        except AnalysisException:
            return False
        except (*SPARK_ERRORS, OSError) as error:
            raise self._fault(name, "is unreadable", error) from error
        return True

    @contextmanager
    def _set(self, settings: Mapping[str, str]) -> Iterator[None]:
        """Change the session's settings in the block, where its platform allows that."""
        before: dict[str, str | None] = {}
        with suppress(*SPARK_ERRORS):
            for key, value in settings.items():
                before[key] = self.spark.conf.get(key, None)
                self.spark.conf.set(key, value)
        try:
            yield
        finally:
            for key, old in before.items():
                with suppress(*SPARK_ERRORS):
                    self.spark.conf.unset(key) if old is None else self.spark.conf.set(key, old)


def _remove(spark: SparkSession, root: str, name: str) -> None:
    """Remove a table with its data, as far as this session may."""
    folder = local_folder(root)
    if not is_path(root):
        with suppress(*SPARK_ERRORS):
            spark.sql(f"DROP TABLE IF EXISTS {table_name(root, name)}")
    elif folder is not None:
        shutil.rmtree(folder / name, ignore_errors=True)
    else:
        # PySpark has no other way to Hadoop's file systems; Spark Connect has none at all.
        with suppress(*SPARK_ERRORS, AttributeError):
            jvm: Any = spark._jvm  # noqa: SLF001
            path = jvm.org.apache.hadoop.fs.Path(table_path(root, name))
            conf = spark._jsc.hadoopConfiguration()  # noqa: SLF001
            path.getFileSystem(conf).delete(path, True)  # noqa: FBT003 - Java's


def _is_absence(error: Exception) -> bool:
    """Whether an error says that there is no such table."""
    return isinstance(error, AnalysisException) and any(each in str(error) for each in _ABSENCE)


def _choose(table_df: DataFrame, conditions: Sequence[Condition]) -> DataFrame:
    chosen_df = table_df
    for condition in conditions:
        if isinstance(condition, Among) and len(condition.values) > _MOST_LITERALS:
            values = [(value,) for value in condition.values]
            wanted_df = table_df.sparkSession.createDataFrame(values, "wanted string")
            is_wanted = _column(condition.column).eqNullSafe(F.col("wanted"))
            chosen_df = chosen_df.join(wanted_df, on=is_wanted, how="left_semi")
        else:
            for predicate in _predicates(condition):
                chosen_df = chosen_df.filter(predicate)
    return chosen_df


def _predicates(condition: Condition) -> Iterator[Column]:
    if isinstance(condition, Named):
        by_key, by_id = (one for each in condition.either for one in _predicates(each))
        yield by_key | by_id
    elif isinstance(condition, Among):
        column = _column(condition.column)
        is_among = column.isin([value for value in condition.values if value is not None])
        yield is_among | column.isNull() if None in condition.values else is_among
    else:
        if condition.start is not None:
            yield F.col(condition.column) >= _instant(condition.start)
        if condition.end is not None:
            yield F.col(condition.column) < _instant(condition.end)


def _instant(at: datetime) -> Column:
    """A constant, which Delta compares with the statistics of files."""
    return F.timestamp_micros(F.lit(micros(at)))


def _sql_type(kind: DataType) -> str:
    # The session may say that a plain `timestamp` has no time zone.
    return "timestamp_ltz" if isinstance(kind, TimestampType) else kind.simpleString()


def _stream(chosen_df: DataFrame, columns: Sequence[str]) -> Iterator[LedgerRow]:
    """Instants travel as microseconds: PySpark would give them in this process's time zone."""
    instants = {f.name for f in chosen_df.schema if isinstance(f.dataType, TimestampType)}
    rows_df = chosen_df.select(*(_column(each, is_instant=each in instants) for each in columns))
    for row in rows_df.toLocalIterator():
        yield {
            column: _plain(value, is_instant=column in instants)
            for column, value in zip(columns, row, strict=True)
        }


def _column(name: str, *, is_instant: bool = False) -> Column:
    if name == ENCLOSED_TYPES:
        return F.try_element_at("headers", F.lit(ENCLOSED_TYPES))
    if name.endswith(MICROSECONDS):
        return F.unix_micros(name.removesuffix(MICROSECONDS))
    return F.unix_micros(name) if is_instant else F.col(name)


def _plain(value: Any, *, is_instant: bool) -> Any:
    if is_instant and value is not None:
        return instant_of(value)
    return bytes(value) if isinstance(value, bytearray) else value


def _format_properties(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{_literal(key)} = {_literal(value)}" for key, value in properties.items())


def _literal(text: str) -> str:
    """A text in Spark's SQL, also with quotes and backslashes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
