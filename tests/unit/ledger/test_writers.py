"""Which roots delta-rs can write."""

import pytest

from duesweep.errors import ConfigError
from duesweep.ledger.writers import require_delta_rs_root


@pytest.mark.parametrize(
    "root",
    [
        *("/var/ledger", "file:///var/ledger", "s3://bucket/ledger", "gs://bucket/ledger"),
        "abfss://c@account.dfs.core.windows.net/ledger",
    ],
)
def test_delta_rs_writes_folders_and_object_stores(root: str) -> None:
    require_delta_rs_root(root)


@pytest.mark.parametrize(
    "root",
    [
        *("main.ledger", "s3a://bucket/ledger", "dbfs:/ledger", "hdfs://name/ledger"),
        "/var/100%/ledger",
    ],
)
def test_other_roots_are_sparks(root: str) -> None:
    with pytest.raises(ConfigError, match="delta-rs cannot write a ledger at"):
        require_delta_rs_root(root)
