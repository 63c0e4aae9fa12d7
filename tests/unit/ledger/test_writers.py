"""Which writer a ledger gets."""

import pytest

from duesweep.core.ledger_writer import LedgerWriter
from duesweep.errors import ConfigError
from duesweep.ledger.writers import choose_writer

AUTO, DELTA_RS, SPARK = LedgerWriter.AUTO, LedgerWriter.DELTA_RS, LedgerWriter.SPARK


@pytest.mark.parametrize(
    ("root", "writer"),
    [
        ("/var/ledger", DELTA_RS),
        ("file:///var/ledger", DELTA_RS),
        ("s3://bucket/ledger", DELTA_RS),
        ("abfss://c@account.dfs.core.windows.net/ledger", DELTA_RS),
        ("gs://bucket/ledger", DELTA_RS),
        ("s3a://bucket/ledger", SPARK),
        ("dbfs:/ledger", SPARK),
        ("hdfs://name/ledger", SPARK),
        ("main.ledger", SPARK),
        ("/var/100%/ledger", SPARK),
    ],
)
def test_delta_rs_writes_what_it_can(root: str, writer: LedgerWriter) -> None:
    assert choose_writer(root, AUTO, paths_are_local=True) is writer


@pytest.mark.parametrize(
    ("root", "writer"), [("/ledger", SPARK), ("file:///ledger", DELTA_RS), ("gs://b/l", DELTA_RS)]
)
def test_path_without_a_scheme_is_sparks_where_spark_means_another_place(
    root: str, writer: LedgerWriter
) -> None:
    assert choose_writer(root, AUTO, paths_are_local=False) is writer


def test_writer_that_is_asked_for_is_taken() -> None:
    assert choose_writer("/ledger", SPARK, paths_are_local=True) is SPARK
    assert choose_writer("/ledger", DELTA_RS, paths_are_local=False) is DELTA_RS


@pytest.mark.parametrize("root", ["main.ledger", "s3a://bucket/ledger", "dbfs:/ledger"])
def test_delta_rs_where_it_cannot_write_is_refused(root: str) -> None:
    with pytest.raises(ConfigError, match="delta-rs cannot write a ledger at"):
        choose_writer(root, DELTA_RS, paths_are_local=True)
