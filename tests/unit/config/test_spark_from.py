"""From how many due messages on a sweep is Spark's, and who writes the ledger without PySpark."""

import pytest

from duesweep import config as configuration
from duesweep.config import Config
from duesweep.config.adapters import context as made
from duesweep.config.adapters.context import sweep_context
from duesweep.core import submit
from duesweep.core.policy import LedgerWriter
from duesweep.core.submit import SubmitOptions
from duesweep.operations.opening import choose_engine

_DSN = "postgresql://u@127.0.0.1:1/nsb"
_SQL_SERVER = "Driver=x;Server=127.0.0.1;Database=nsb"


def _config(kind: str = "postgresql", **sweep: object) -> Config:
    store = {"kind": kind, "dsn": _DSN if kind == "postgresql" else _SQL_SERVER, "endpoint": "S"}
    ledger = {"root": "/var/lib/ledger"}
    return Config.model_validate({"store": store, "ledger": ledger, "sweep": sweep})


@pytest.fixture(autouse=True)
def own_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell without a prepared Spark."""
    for name in ("MASTER", "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("duesweep.config.environment.has_prepared_session", lambda: False)


@pytest.mark.parametrize(
    ("variable", "option", "expected"),
    [
        (None, None, 2_000_000),
        ("local[8]", None, 2_000_000),
        ("spark://h:7077", None, 200_000),
        (None, ("--master", "yarn"), 200_000),
        (None, ("--master", "local-cluster[2,1,1024]"), 200_000),
        (None, ("--remote", "sc://h"), 200_000),
    ],
)
def test_spark_that_has_to_start_on_the_same_cores_pays_later(
    variable: str | None,
    option: tuple[str, str] | None,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if variable is not None:
        monkeypatch.setenv("MASTER", variable)
    given = SubmitOptions(() if option is None else (option,))
    monkeypatch.setattr(submit, "command_line", given)

    context = sweep_context(_config(), needs_ladder=False)

    assert context.spark_from == expected


@pytest.mark.parametrize(
    ("kind", "sweep", "expected"),
    [
        ("sqlserver", {}, 50_000),
        ("postgresql", {"spark_from": 7}, 7),
        ("postgresql", {"engine": "spark", "spark_from": 7}, 0),
        ("postgresql", {"engine": "process", "spark_from": 7}, None),
    ],
)
def test_settings_say_from_how_many_messages_on(
    kind: str, sweep: dict[str, object], expected: int | None
) -> None:
    assert sweep_context(_config(kind, **sweep)).spark_from == expected


def test_sweep_is_sparks_from_that_number_on() -> None:
    choice = choose_engine(sweep_context(_config(spark_from=7)), prefers_session=False)

    assert not choice.is_spark(lambda: 6)
    assert choice.is_spark(lambda: 7)


@pytest.mark.parametrize(
    ("has_pyspark", "writer"), [(True, LedgerWriter.SPARK), (False, LedgerWriter.DELTA_RS)]
)
def test_ledger_is_written_by_delta_rs_if_pyspark_is_missing(
    writer: LedgerWriter, monkeypatch: pytest.MonkeyPatch, *, has_pyspark: bool
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop/conf")
    monkeypatch.setattr(made, "has_pyspark", lambda: has_pyspark)
    assert configuration.has_cluster_files()

    assert sweep_context(_config()).ledger_writer is writer
