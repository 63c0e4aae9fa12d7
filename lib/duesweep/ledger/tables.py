"""The ledger's tables: where they are, their schemas, and appends that count once.

Delta records (txnAppId, txnVersion) with a commit and silently ignores a version that it has seen,
so an append under a settle id happens once, however often it is tried:
https://docs.delta.io/latest/delta-batch.html#idempotent-table-writes-in-foreachbatch
"""

import fcntl
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit
from uuid import UUID

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from duesweep.errors import ConfigError, LedgerError
from duesweep.ledger.schemas import SCHEMAS
from duesweep.spark_errors import SPARK_ERRORS, sentence

TRANSACTION_RETENTION_DAYS = 90
# Longer than settle relies on: the two clocks are not one.
_RETENTION = f"interval {TRANSACTION_RETENTION_DAYS + 10} days"
_ID_PROPERTY = "duesweep.ledgerId"
# Of the columns by which a reader can skip files; of random ids they would only cost time.
_STATISTICS = "delta.dataSkippingStatsColumns"
_SKIPPED_BY = "sweep_id,source,due,dispatched_at"
# The table that holds the ledger's id is made last: where it is, the others are.
_TABLES = ("errors", "retries", "sweeps", "tombstones")
_CONFLICT_TRIES = 5
_LOCK_NAME = ".duesweep.lock"
_LOCK_WAIT_SECONDS = 300.0
_LOCK_POLL_SECONDS = 0.1
_S3_LOG_STORE = "spark.delta.logStore.{scheme}.impl"


@dataclass(frozen=True, slots=True)
class Ledger:
    """The four tables under one root: a path (with a `/` or a scheme) or a catalog schema."""

    spark: SparkSession
    root: str

    def read_id(self) -> UUID | None:
        """The ledger's id; None where there is no ledger yet.

        Raises `ConfigError` for an unsafe root, `LedgerError` where the root cannot be read.
        """
        self._check_log_store()
        try:
            rows = self.spark.sql(f"SHOW TBLPROPERTIES {self.table('tombstones')}").collect()
        except AnalysisException as error:
            if "SCHEMA_NOT_FOUND" in str(error):
                raise ConfigError(
                    f"ledger.root is {self.root!r}, and there is no such catalog schema; create "
                    "it, or write a path with a slash, as in ./ledger"
                ) from error
            return None
        except SPARK_ERRORS as error:
            raise LedgerError(
                f"The ledger at {self.root} is unreadable: {sentence(error)}"
            ) from error
        found = [row["value"] for row in rows if row["key"] == _ID_PROPERTY]
        if not found:
            raise ConfigError(
                f"{self.table('tombstones')} is no table of a duesweep ledger; set ledger.root to "
                "a place of its own"
            )
        return UUID(found[0])

    def create(self) -> UUID:
        """Create the tables; the ledger's id, which is another's where that was faster."""
        self.check_writable()
        with self.writing():
            self._create()
        ledger_id = self.read_id()
        if ledger_id is None:
            raise LedgerError(f"The ledger at {self.root} was created, but is not to be seen there")
        return ledger_id

    def check_writable(self) -> None:
        """Raise `ConfigError` where a local root cannot be written; others say so themselves."""
        folder = _local_folder(self.root)
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / _LOCK_NAME).open("a").close()
            except OSError as error:
                raise ConfigError(
                    f"The ledger cannot be written under {folder}: {error}; check ledger.root and "
                    "who owns it"
                ) from error

    def table(self, name: str) -> str:
        """The table as SQL and `spark.read.table` name it."""
        if _is_path(self.root):
            path = f"{self.root.rstrip('/')}/{name}".replace("`", "``")
            return f"delta.`{path}`"
        return ".".join(f"`{part}`" for part in (*self.root.split("."), name))

    def append(self, name: str, rows_df: DataFrame, *, sweep_id: UUID, version: int = 1) -> None:
        """Append a piece of a group's rows, once; pieces count up from 1."""
        self._write(name, (sweep_id, version), lambda: rows_df.write.mode("append"))

    def replace_source(self, name: str, rows_df: DataFrame, source: str, *, sweep_id: UUID) -> None:
        """Replace the rows of one source, once."""
        escaped = source.replace("\\", "\\\\").replace("'", "\\'")
        self._write(
            name,
            (sweep_id, 1),
            lambda: rows_df.write.mode("overwrite").option("replaceWhere", f"source = '{escaped}'"),
        )

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only writer where Delta itself cannot see to it: under a local root."""
        folder = _local_folder(self.root)
        if folder is None:
            yield
            return
        try:
            lock = (folder / _LOCK_NAME).open("a")
        except OSError as error:
            raise LedgerError(
                f"The ledger cannot be written under {folder}: {error}; the journal keeps the rows"
            ) from error
        with lock:
            _lock_file(lock, folder)
            yield

    def _write(
        self, name: str, transaction: tuple[UUID, int], writer: Callable[[], DataFrameWriter]
    ) -> None:
        for tries_left in reversed(range(_CONFLICT_TRIES)):
            try:
                write = writer().format("delta").option("txnAppId", str(transaction[0]))
                write = write.option("txnVersion", str(transaction[1]))
                if _is_path(self.root):
                    write.save(f"{self.root.rstrip('/')}/{name}")
                else:
                    write.saveAsTable(self.table(name))
            except SPARK_ERRORS as error:
                # Somebody else's commit came between. Tried again, the append either finds its own
                # transaction recorded, and is ignored, or goes through.
                if tries_left and _is_conflict(error):
                    continue
                raise LedgerError(
                    f"{self.table(name)} could not be written: {sentence(error)}; the journal "
                    "keeps the rows, and the next sweep tries again"
                ) from error
            return

    def _create(self) -> None:
        for name in _TABLES:
            properties = {"delta.setTransactionRetentionDuration": _RETENTION}
            if name == "tombstones":
                properties |= {_ID_PROPERTY: str(uuid.uuid4()), _STATISTICS: _SKIPPED_BY}
            listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
            columns = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in SCHEMAS[name])
            try:
                self.spark.sql(
                    f"CREATE TABLE IF NOT EXISTS {self.table(name)} ({columns}) USING delta "
                    f"TBLPROPERTIES ({listed})"
                )
            except SPARK_ERRORS as error:
                if not _is_conflict(error):
                    raise LedgerError(
                        f"{self.table(name)} could not be created: {sentence(error)}; check "
                        "ledger.root and the right to write there"
                    ) from error

    def _check_log_store(self) -> None:
        scheme = urlsplit(self.root).scheme if _is_path(self.root) else ""
        if scheme not in {"s3", "s3a", "s3n"}:
            return
        setting = _S3_LOG_STORE.format(scheme=scheme)
        on_databricks = self.spark.conf.get("spark.databricks.clusterUsageTags.clusterId", None)
        if on_databricks is None and self.spark.conf.get(setting, None) is None:
            raise ConfigError(
                f"Two sweeps could overwrite each other's commits under {self.root}: set {setting} "
                "to a multi-writer log store (io.delta.storage.S3DynamoDBLogStore)"
            )


def _is_path(root: str) -> bool:
    return "/" in root or ":" in root


def _local_folder(root: str) -> Path | None:
    if not _is_path(root):
        return None
    parts = urlsplit(root)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return Path(root) if not parts.scheme else None


def _lock_file(lock: IO[str], folder: Path) -> None:
    deadline = time.monotonic() + _LOCK_WAIT_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise LedgerError(
                    f"Another process has been writing the ledger under {folder} for "
                    f"{_LOCK_WAIT_SECONDS:.0f} s; the journal keeps what is to be written"
                ) from None
            time.sleep(_LOCK_POLL_SECONDS)
        else:
            return


def _is_conflict(error: Exception) -> bool:
    text = str(error)
    return "DELTA_CONCURRENT" in text or "DELTA_PROTOCOL_CHANGED" in text or "Concurrent" in text
