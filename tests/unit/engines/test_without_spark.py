"""A large sweep without Spark: it is done in its own process, and says why."""

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.errors import PySparkException

from duesweep.core.errors import ConfigError, DuesweepError, ExitCode, SparkError
from duesweep.core.policy import LedgerWriter
from duesweep.core.result import exit_code_of
from duesweep.operations import opening
from duesweep.operations.look import Look
from duesweep.operations.opening import choose_engine
from duesweep.operations.run import Run, sweep_seen
from duesweep.report.views.runs import document
from duesweep.stores.due import Due, JdbcSource
from duesweep.sweep.stop import Stop
from duesweep_testing.builders import delayed_row
from duesweep_testing.memory import MemoryStore
from duesweep_testing.memory_queue import MemoryQueue
from duesweep_testing.sweeps import context_of

_NO_JAVA = ConfigError("Spark needs Java 17 or 21, and java does not run", advice="install it")
_NO_SPARK = SparkError("PySpark is not installed", transient=False, advice="install it")
_DOWN = SparkError("Spark did not start: no master answers", transient=True)
_LOOK = Look(has_work=True, needs_spark=True, notices=())


def _sweep(error: DuesweepError, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Run:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(opening, "open_spark", fail)
    store = MemoryStore([delayed_row("Billing") for _ in range(3)])
    settings = {"ledger_writer": LedgerWriter.DELTA_RS, "spark_from": 2} | settings
    context = context_of(store, MemoryQueue("Billing"), store.clock, **settings)
    return sweep_seen(context, _LOOK, Stop())


@pytest.mark.parametrize("error", [_NO_JAVA, _NO_SPARK, _DOWN], ids=["Java", "PySpark", "master"])
def test_large_sweep_without_spark_is_done_in_process_and_says_why(
    error: DuesweepError, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        run = _sweep(error, monkeypatch)
    except DuesweepError as raised:
        pytest.fail(f"it moved nothing: {raised}")

    assert (run.exit_code, run.report and run.report.dispatched) == (ExitCode.DONE, 3)
    told = document(run)
    assert told["engine"] == "in-process"
    assert error.text in told["without_spark"]
    assert 'set sweep.engine = "process"' in told["without_spark"]


def test_spark_whose_own_driver_cannot_read_the_store_is_no_reason_to_move_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "An error occurred while calling o1.jdbc\n: org.postgresql.util.PSQLException: {}"
    error = PySparkException(text.format("Could not read SSL key file /k.pem."))
    session = SimpleNamespace(read=SimpleNamespace(jdbc=Mock(side_effect=error)))
    monkeypatch.setattr(opening, "open_spark", lambda *_: session)
    monkeypatch.setattr(Due, "jdbc", lambda *_: JdbcSource("jdbc:", {}))
    store = MemoryStore([delayed_row("Billing") for _ in range(3)])
    context = context_of(
        store,
        MemoryQueue("Billing"),
        store.clock,
        ledger_writer=LedgerWriter.DELTA_RS,
        spark_from=2,
    )

    run = sweep_seen(context, _LOOK, Stop())

    assert (run.exit_code, run.report and run.report.dispatched) == (ExitCode.DONE, 3)
    assert "Could not read SSL key file" in str(run.without_spark)


_NO_JDBC = ConfigError("The dsn names a Unix socket, which JDBC cannot use", advice="give a host")


@pytest.mark.parametrize("spark_from", [2, 0], ids=["Spark may sweep", "Spark has to sweep"])
def test_store_that_jdbc_cannot_read_is_refused_only_if_spark_has_to_read_it(
    spark_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "open_spark", lambda *_: SimpleNamespace())
    monkeypatch.setattr(Due, "jdbc", Mock(side_effect=_NO_JDBC))
    store = MemoryStore([delayed_row("Billing") for _ in range(3)])
    settings = {"ledger_writer": LedgerWriter.DELTA_RS, "spark_from": spark_from}
    context = context_of(store, MemoryQueue("Billing"), store.clock, **settings)

    if spark_from:
        run = sweep_seen(context, _LOOK, Stop())
        assert (run.exit_code, run.report and run.report.dispatched) == (ExitCode.DONE, 3)
        assert _NO_JDBC.text in str(run.without_spark)
    else:
        with pytest.raises(ConfigError, match="which JDBC cannot use"):
            sweep_seen(context, _LOOK, Stop())
        assert len(store.rows) == 3


@pytest.mark.parametrize(
    "settings",
    [{"spark_from": 0}, {"ledger_writer": LedgerWriter.SPARK}],
    ids=["the settings want Spark", "Spark writes the ledger"],
)
def test_sweep_that_needs_spark_is_refused_without_it(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SparkError) as caught:
        _sweep(_NO_SPARK, monkeypatch, **settings)

    assert exit_code_of(caught.value) == ExitCode.CONFIGURATION


def test_sweep_in_process_by_its_settings_is_never_sparks(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    context = context_of(store, MemoryQueue(), spark_from=None, ledger_writer=LedgerWriter.DELTA_RS)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")

    assert not choose_engine(context).is_spark(lambda: 10**9)
    assert not choose_engine(context, prefers_session=False).is_spark(lambda: 10**9)
    assert choose_engine(replace(context, spark_from=10)).is_spark(lambda: 1)


_WITHOUT_PYSPARK = """
import sys
class Blocker:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {"pyspark", "py4j", "delta"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])
sys.meta_path.insert(0, Blocker())
import pkgutil, importlib, duesweep
from duesweep.core.errors import SparkError
from duesweep.core.result import exit_code_of
known = {"drivers.spark", "sweep.spark", "ledger.spark", "operations.doctor_spark"}
for found in pkgutil.walk_packages(duesweep.__path__, "duesweep."):
    if found.name.removeprefix("duesweep.") not in known and "__main__" not in found.name:
        importlib.import_module(found.name)
from duesweep.operations.opening import open_spark
try:
    open_spark()
except SparkError as error:
    print(int(exit_code_of(error)), error)
"""


def test_without_pyspark_everything_else_loads_and_its_absence_is_one_sentence() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _WITHOUT_PYSPARK], capture_output=True, text=True, check=False
    )

    assert ran.stdout == "2 PySpark is not installed; install duesweep[spark]\n", ran.stderr


@pytest.mark.parametrize(
    ("root", "advice"),
    [
        ("./ledger", "install it"),
        ("ledger", "write ./ledger for a folder, or install it"),
        ("./a%20b", "set it to a folder without %, or to s3:, abfss: or gs:, or install it"),
        ("https://host/ledger", "set it to a folder without %, or to s3:, abfss: or gs:, or "),
    ],
)
def test_ledger_that_needs_pyspark_is_named_with_one_that_does_without(
    root: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "drivers_spark", Mock(side_effect=_NO_SPARK))

    with pytest.raises(SparkError) as raised:
        opening.open_spark(root)

    assert (raised.value.advice or "").startswith(advice)
    assert (repr(root) in str(raised.value)) == (root != "./ledger")
