"""On S3, Spark writes a ledger only with a log store that keeps several writers apart."""

from types import SimpleNamespace
from typing import Any

import pytest

from duesweep.core.errors import ConfigError
from duesweep.ledger.spark import SparkTables

_SETTING = "spark.delta.logStore.s3a.impl"


class _AllowedError(AssertionError):
    """The check has passed, and the table is asked for."""


def _facts(**given: str) -> Any:
    def sql(_: str) -> None:
        raise _AllowedError

    conf = {name.replace("__", "."): value for name, value in given.items()}
    spark: Any = SimpleNamespace(conf=conf, sql=sql)
    return SparkTables(spark, "s3a://bucket/ledger").facts("tombstones")


@pytest.mark.parametrize(
    "store",
    [
        None,
        "io.delta.storage.S3SingleDriverLogStore",
        "org.apache.spark.sql.delta.storage.S3SingleDriverLogStore",
        "io.delta.storage.HDFSLogStore",
    ],
)
def test_store_for_one_writer_is_refused_by_name_and_delta_rs_advised(store: str | None) -> None:
    given = {} if store is None else {_SETTING: store}

    with pytest.raises(ConfigError) as refused:
        _facts(**given)

    assert "could overwrite each other's commits under s3a://bucket/ledger" in refused.value.text
    assert store is None or store.rpartition(".")[2] in refused.value.text
    assert 'set ledger.writer = "delta-rs"' in str(refused.value.advice)


@pytest.mark.parametrize(
    "given",
    [
        {_SETTING: "io.delta.storage.S3DynamoDBLogStore"},
        {"spark.databricks.clusterUsageTags.clusterId": "1"},
    ],
)
def test_store_for_several_writers_is_taken(given: dict[str, str]) -> None:
    with pytest.raises(_AllowedError):
        _facts(**given)
