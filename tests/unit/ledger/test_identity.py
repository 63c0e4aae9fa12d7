"""Which ledger the tables under a root are, and which roots delta-rs can write."""

from uuid import UUID

import pytest

from duesweep.config import Config
from duesweep.config.adapters.context import sweep_context
from duesweep.core.errors import ConfigError
from duesweep.core.policy import LedgerWriter
from duesweep.ledger.base import TABLES, LedgerTableFacts
from duesweep.ledger.ledger import (
    ID_PROPERTY,
    ROLE_PROPERTY,
    identify,
    open_ledger,
    require_delta_rs_root,
)

_ONE, _OTHER = UUID(int=1), UUID(int=2)


def _table(name: str, ledger_id: UUID | None, role: str | None = None) -> LedgerTableFacts:
    properties = {} if ledger_id is None else {ID_PROPERTY: str(ledger_id)}
    if role is not None:
        properties[ROLE_PROPERTY] = role
    return LedgerTableFacts(name, f"`{name}`", properties)


def _all_but(name: str, ledger_id: UUID | None = _ONE) -> list[LedgerTableFacts]:
    return [_table(other, ledger_id, other) for other in TABLES if other != name]


def test_nothing_is_no_ledger() -> None:
    identity = identify(LedgerTableFacts(name, name) for name in TABLES)

    assert (identity.ledger_id, identity.missing) == (None, TABLES)
    identity.refuse_incomplete("/ledger")


@pytest.mark.parametrize(
    "foreign",
    [
        _table("tombstones", None),
        LedgerTableFacts("errors", "`errors`", {}),
        LedgerTableFacts("errors", "`errors`", {ID_PROPERTY: "1", ROLE_PROPERTY: "errors"}),
    ],
)
def test_other_peoples_tables_are_refused(foreign: LedgerTableFacts) -> None:
    with pytest.raises(ConfigError, match="is not a table of a duesweep ledger"):
        identify([*_all_but(foreign.name), foreign])


class _Session:
    """A session of Spark whose paths without a scheme are on `files`."""

    def __init__(self, files: str) -> None:
        self._files = files

    sparkContext = _jsc = property(lambda self: self)  # noqa: N815 - Spark's name

    def hadoopConfiguration(self) -> dict[str, str]:  # noqa: N802 - Hadoop's name
        return {"fs.defaultFS": self._files}


def _configured(writer: LedgerWriter, root: str) -> LedgerWriter:
    """The writer of an endpoint with these settings."""
    store = {"kind": "postgresql", "dsn": "postgresql://u@127.0.0.1:1/nsb", "endpoint": "S"}
    settings = {"store": store, "ledger": {"root": root, "writer": writer}}
    return sweep_context(Config.model_validate(settings)).ledger_writer


def _writer_of(writer: LedgerWriter, root: str, session: _Session | None = None) -> str:
    """The writer with which such an endpoint opens its ledger, if a session is there."""
    ledger = open_ledger(root, _configured(writer, root), session)  # type: ignore[arg-type]
    return {"DeltaRsTables": "delta-rs", "SparkTables": "spark"}[type(ledger.tables).__name__]


@pytest.mark.parametrize("root", ["/var/ledger", "file:///var/ledger", "ledger/of sales"])
def test_folders_are_delta_rs_own(root: str) -> None:
    require_delta_rs_root(root)
    assert _writer_of(LedgerWriter.AUTO, root) == "delta-rs"


@pytest.mark.parametrize(
    "root",
    [
        *("s3://bucket/ledger", "s3a://bucket/ledger", "gs://bucket/ledger"),
        "abfss://c@account.dfs.core.windows.net/ledger",
    ],
)
def test_object_stores_are_delta_rs_own_whichever_sessions_are_there(root: str) -> None:
    require_delta_rs_root(root)
    for session in (None, _Session("file:///"), _Session("hdfs://name")):
        assert _writer_of(LedgerWriter.AUTO, root, session) == "delta-rs"


@pytest.mark.parametrize(
    "root",
    [
        *("main.ledger", "dbfs:/ledger", "hdfs://name/ledger"),
        "/var/100%/ledger",
    ],
)
def test_other_roots_are_sparks(root: str) -> None:
    with pytest.raises(ConfigError, match="delta-rs cannot write a ledger at"):
        require_delta_rs_root(root)
    assert _configured(LedgerWriter.AUTO, root) is LedgerWriter.SPARK


@pytest.mark.parametrize(("files", "writer"), [("file:///", "delta-rs"), ("hdfs://name", "spark")])
def test_path_that_spark_finds_elsewhere_is_sparks(files: str, writer: str) -> None:
    assert _writer_of(LedgerWriter.AUTO, "/ledger", _Session(files)) == writer


@pytest.mark.parametrize("writer", [LedgerWriter.DELTA_RS, LedgerWriter.SPARK])
def test_writer_that_is_asked_for_is_taken(writer: LedgerWriter) -> None:
    assert _configured(writer, "/ledger") is writer
    assert _writer_of(writer, "/ledger", _Session("hdfs://name")) == writer
