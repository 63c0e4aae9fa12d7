"""A sweep on Spark: into how many slices its plan is cut, the settings of its session, and a fault
that ends it and lasts.
"""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark import SparkConf
from pyspark.errors import PySparkException

from duesweep.core.errors import ConfigError, ExitCode, SparkError
from duesweep.core.result import exit_code_of
from duesweep.core.submit import SubmitOptions
from duesweep.drivers import spark
from duesweep.drivers.spark import SETTINGS, refuse_settings, with_ours
from duesweep.operations.opening import open_spark
from duesweep.sweep.in_process import InProcessEngine
from duesweep.sweep.job import CutShort, Dispatched
from duesweep.sweep.spark import SparkEngine
from duesweep_testing.builders import delayed_row
from duesweep_testing.memory import MemoryStore
from duesweep_testing.memory_queue import MemoryQueue
from duesweep_testing.sweeps import context_of
from support.ports import free_port
from support.sweeps import run_sweep

_BATCH = 2_000


def _session(master: str, cores: int, **settings: str) -> Any:
    known = {"spark.master": master, **settings}
    conf = SimpleNamespace(get=known.get)
    context = SimpleNamespace(defaultParallelism=cores, getConf=lambda: conf)
    return SimpleNamespace(conf=conf, sparkContext=context)


@pytest.mark.parametrize(
    ("master", "cores", "wanted", "due", "slices"),
    [
        ("local[2]", 2, 0, 400_000, 2),
        ("local[2]", 2, 5, 400_000, 5),
        ("spark://h:7077", 2, 0, 40_000, 20),
        ("spark://h:7077", 2, 0, 400_000, 32),
        ("spark://h:7077", 2, 0, 2_000_000, 80),
        ("yarn", 100, 0, 400_000, 100),
        ("local-cluster[2,1,1024]", 2, 0, 400_000, 32),
        ("spark://h:7077", 2, 3, 400_000, 3),
    ],
)
def test_plan_for_a_cluster_has_slices_for_cores_that_come_later(
    master: str, cores: int, wanted: int, due: int, slices: int
) -> None:
    engine = SparkEngine(_session(master, cores))

    assert engine.slicing(wanted, _BATCH).count(due) == slices


class _OverConnect(SimpleNamespace):
    """A session without a context."""

    @property
    def sparkContext(self) -> Any:  # noqa: N802 - Spark's own name
        raise PySparkException("[JVM_ATTRIBUTE_NOT_SUPPORTED]")


def test_session_that_was_stopped_is_told_as_such() -> None:
    stopped: list[Any] = [
        SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None)),
        _OverConnect(is_stopped=True),
    ]
    for each in stopped:
        with pytest.raises(SparkError, match="The Spark session was stopped; give a session"):
            open_spark(given=each)
    running = _OverConnect(is_stopped=False)
    assert open_spark(given=cast("Any", running)) is running


def test_second_copies_of_tasks_are_refused_and_the_setting_is_named() -> None:
    refuse_settings(_session("yarn", 2))

    with pytest.raises(
        ConfigError, match=r"spark\.speculation is on.*set spark\.speculation=false"
    ):
        refuse_settings(_session("yarn", 2, **{"spark.speculation": "true"}))


def test_server_of_spark_connect_that_does_not_answer_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spark, "SparkContext", SimpleNamespace(_gateway=None))
    monkeypatch.setattr(spark.SparkSession, "getActiveSession", lambda: None)
    options = SubmitOptions((("--remote", f"sc://127.0.0.1:{free_port()}/;token=secret"),))

    with pytest.raises(SparkError, match="no server answers at") as caught:
        spark.spark_session(options)

    assert exit_code_of(caught.value) == ExitCode.WORK_LEFT
    assert "secret" not in str(caught.value)


def test_settings_of_the_user_win_and_extensions_are_added() -> None:
    extensions, zone = "spark.sql.extensions", "spark.sql.session.timeZone"
    given = SparkConf(loadDefaults=False).set(extensions, "acme.Rules").set(zone, "Asia/Kolkata")

    conf = dict(with_ours(given).getAll())

    assert conf == SETTINGS | {
        zone: "Asia/Kolkata",
        extensions: f"acme.Rules,{SETTINGS[extensions]}",
    }


class _CutEngine(InProcessEngine):
    """Ends before it has dispatched anything, by a fault that a person has to correct."""

    def dispatch(self, *_: object) -> Dispatched:
        return Dispatched(CutShort("Spark ended the job: no module; install it", is_lasting=True))


def test_fault_that_lasts_ends_the_sweep_with_the_code_of_the_configuration() -> None:
    store = MemoryStore([delayed_row("Billing")])
    context = context_of(store, MemoryQueue("Billing"), store.clock)

    report = run_sweep(context, _CutEngine())

    assert exit_code_of(report) == ExitCode.CONFIGURATION
    assert (report.outcome, report.left) == ("incomplete", 1)
    assert report.reason == "Spark ended the job: no module; install it"
    assert exit_code_of(run_sweep(context)) == ExitCode.DONE


@pytest.mark.parametrize("address", ["sc://[bad", "sc://h:99999", "sc://u:s3#cret@h"])
def test_address_of_spark_connect_that_is_none_is_refused_and_not_quoted(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark, "SparkContext", SimpleNamespace(_gateway=None))
    monkeypatch.setattr(spark.SparkSession, "getActiveSession", lambda: None)
    with pytest.raises(ConfigError, match="--remote or SPARK_REMOTE") as caught:
        spark.spark_session(SubmitOptions((("--remote", address),)))

    assert "s3" not in str(caught.value)
