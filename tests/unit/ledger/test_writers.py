"""Which roots delta-rs can write."""

import pytest

from duesweep.core.errors import ConfigError
from duesweep.core.policy import LedgerWriter
from duesweep.ledger.ledger import require_delta_rs_root, resolve_writer


@pytest.mark.parametrize("root", ["/var/ledger", "file:///var/ledger", "ledger/of sales"])
def test_folders_are_delta_rs_own(root: str) -> None:
    require_delta_rs_root(root)
    assert resolve_writer(LedgerWriter.AUTO, root) is LedgerWriter.DELTA_RS


@pytest.mark.parametrize(
    "root",
    ["s3://bucket/ledger", "gs://bucket/ledger", "abfss://c@account.dfs.core.windows.net/ledger"],
)
def test_object_stores_are_delta_rs_where_it_is_asked_for(root: str) -> None:
    require_delta_rs_root(root)
    assert resolve_writer(LedgerWriter.AUTO, root) is LedgerWriter.SPARK


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
    assert resolve_writer(LedgerWriter.AUTO, root) is LedgerWriter.SPARK


class _Session:
    """A session of Spark whose paths without a scheme are on `files`."""

    def __init__(self, files: str) -> None:
        self._files = files

    sparkContext = _jsc = property(lambda self: self)  # noqa: N815 - Spark's name

    def hadoopConfiguration(self) -> dict[str, str]:  # noqa: N802 - Hadoop's name
        return {"fs.defaultFS": self._files}


@pytest.mark.parametrize(("files", "writer"), [("file:///", "delta-rs"), ("hdfs://name", "spark")])
def test_path_that_spark_finds_elsewhere_is_sparks(files: str, writer: str) -> None:
    assert resolve_writer(LedgerWriter.AUTO, "/ledger", _Session(files)) == writer  # type: ignore[arg-type]


@pytest.mark.parametrize("writer", [LedgerWriter.DELTA_RS, LedgerWriter.SPARK])
def test_writer_that_is_asked_for_is_taken(writer: LedgerWriter) -> None:
    assert resolve_writer(writer, "/ledger") is writer
