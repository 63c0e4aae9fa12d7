"""What a test reads of a ledger, and what it has to hold."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from chispa import assert_df_equality
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import DataFrame, Row, SparkSession

_FAILURE = {
    "source": "string",
    "message_key": "string",
    "message_id": "string",
    "destination": "string",
    "attempts": "int",
    "first_failed_at": "timestamp",
    "last_failed_at": "timestamp",
    "next_attempt_at": "timestamp",
    "error_class": "string",
    "error_text": "string",
}
# Written out once more: queries that people keep depend on these names and types.
COLUMNS = {
    "tombstones": {
        "sweep_id": "string",
        "source": "string",
        "message_key": "string",
        "message_id": "string",
        "message_type": "string",
        "destination": "string",
        "queue": "string",
        "due": "timestamp",
        "dispatched_at": "timestamp",
        "lateness_ms": "bigint",
        "attempts": "int",
        "outcome": "string",
        "body_bytes": "bigint",
    },
    "retries": _FAILURE,
    "errors": {
        **_FAILURE,
        "sweep_id": "string",
        "headers": "map<string, string>",
        "headers_text": "string",
        "body": "binary",
        "stack": "string",
    },
    "changes": {
        "sweep_id": "string",
        "source": "string",
        "command": "string",
        "change": "string",
        "changed_at": "timestamp",
        "given_by": "string",
        "reason": "string",
        "message_key": "string",
        "message_id": "string",
        "message_type": "string",
        "destination": "string",
        "due_before": "timestamp",
        "due_after": "timestamp",
        "queue": "string",
        "of": "string",
        "new_key": "string",
        "headers": "map<string, string>",
        "headers_text": "string",
        "body": "binary",
        "body_bytes": "bigint",
    },
    "sweeps": {
        "sweep_id": "string",
        "source": "string",
        "start": "timestamp",
        "end": "timestamp",
        "horizon": "timestamp",
        "found": "bigint",
        "claimed": "bigint",
        "dispatched": "bigint",
        "failed": "bigint",
        "exhausted": "bigint",
        "skipped": "bigint",
        "gone": "bigint",
        "eligible_later": "bigint",
        "left": "bigint",
        "over_limit": "bigint",
        "bytes": "bigint",
        "lateness_p50_ms": "bigint",
        "lateness_p95_ms": "bigint",
        "lateness_max_ms": "bigint",
        "rows_per_second": "double",
        "outcome": "string",
        "reason": "string",
        "engine": "string",
    },
}


@dataclass(frozen=True)
class LedgerReader:
    """The ledger under `root`; `session` makes or returns the Spark session for DataFrames."""

    root: Path
    session: Callable[[], SparkSession] | None = None

    @property
    def spark(self) -> SparkSession:
        assert self.session is not None
        return self.session()

    def table(self, name: str) -> DataFrame:
        return self.spark.read.format("delta").load(str(self.root / name))

    def count(self, name: str) -> int:
        return self._read(name).num_rows

    def rows(self, name: str) -> list[Row]:
        """By delta-rs, which takes a hundredth of Spark's time. Instants as Spark returns them."""
        return [
            Row(**{column: _as_spark_returns(value) for column, value in row.items()})
            for row in self._read(name).to_pylist(maps_as_pydicts="strict")
        ]

    def _read(self, name: str) -> pa.Table:
        # Not by `to_pyarrow_table`: after it Python was seen to abort at its end.
        found = QueryBuilder().register(name, DeltaTable(self.root / name))
        return pa.table(found.execute(f"SELECT * FROM {name}").read_all())

    def assert_holds(
        self, name: str, rows: Sequence[Mapping[str, object]], *, but_for: Collection[str] = ()
    ) -> None:
        """A table has its columns and these rows, and no others. What a row does not name is null;
        columns `but_for` are not compared.
        """
        columns = COLUMNS[name]
        assert all(row.keys() <= columns.keys() for row in rows)
        expected_df = self.spark.createDataFrame(
            [tuple(row.get(column) for column in columns) for row in rows],
            ", ".join(f"`{column}` {kind}" for column, kind in columns.items()),
        )
        key = {"sweeps": ["sweep_id"], "changes": ["message_key", "change"]}.get(
            name, ["message_key"]
        )
        assert_df_equality(
            self.table(name),
            expected_df,
            transforms=[lambda rows_df: rows_df.sort(*key)],
            ignore_columns=list(but_for),
        )

    def commits(self, name: str) -> int:
        log = self.root / name / "_delta_log"
        return len(list(log.glob("*.json"))) if log.exists() else 0


def _as_spark_returns(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone().replace(tzinfo=None)
    return value


def retry_rows(counters: Mapping[str, Any], source: str) -> list[dict[str, Any]]:
    """The rows of `retries` that copy a store's retry counters, which are given by key."""
    copied = _FAILURE.keys() - {"source", "message_key"}
    return [
        {"source": source, "message_key": key, **{name: getattr(row, name) for name in copied}}
        for key, row in counters.items()
    ]
