"""The doctor on a real Spark: session, executors, ledger."""

import json
import os
import platform
import sys

import pytest
from pyspark.sql import SparkSession

from duesweep.config.adapters import Needs
from duesweep.core.finding import is_to_mend
from duesweep.operations.doctor_spark import spark_findings
from support.commands import ROOT, run_program, run_python
from support.diagnosis import diagnosed
from support.endpoint import Endpoint
from support.ports import SPARK_CONNECT, one_at_a_time


@pytest.mark.usefixtures("spark")
def test_what_is_well_is_0_before_and_after_the_first_sweep(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(10)
    file = endpoint.config_file()

    before = diagnosed(file, with_spark=True)
    assert not (endpoint.folder / "ledger").exists()
    assert endpoint.run("sweep").code == 0
    after = diagnosed(file, with_spark=True)

    assert (before.code, before.to_mend()) == (after.code, after.to_mend()) == (0, {})
    assert before.of("ledger")["found"].startswith("There is no ledger yet")
    assert "which the journal belongs to" in after.of("ledger")["found"]
    assert before.of("executor-drivers")["severity"] == "ok"
    assert not [f for f in before.document["findings"] if f["severity"] == "skipped"]


@pytest.mark.usefixtures("spark")
def test_before_setup_the_setup_is_missing_and_not_the_ledger(endpoint: Endpoint) -> None:
    found = diagnosed(endpoint.config_file(), with_spark=True)

    assert found.of("setup")["severity"] == "fault"
    assert found.of("ledger")["severity"] == "skipped"
    assert "The command `setup` has not run" in found.of("ledger")["found"]


@pytest.mark.usefixtures("spark")
def test_ledger_that_is_not_the_journals(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    endpoint.delay()
    assert endpoint.run("sweep").code == 0
    elsewhere = str(endpoint.folder / "elsewhere")

    found = diagnosed(endpoint.config_file(ledger__root=elsewhere), with_spark=True)

    assert (found.code, found.to_mend()) == (3, {("ledger", elsewhere): "fault"})
    assert "setup --rebind" in found.of("ledger")["advice"]


@pytest.mark.usefixtures("spark")
def test_root_that_holds_another_table(endpoint: Endpoint, spark: SparkSession) -> None:
    endpoint.set_up()
    root = endpoint.folder / "ledger"
    spark.range(1).write.format("delta").save(str(root / "tombstones"))

    found = diagnosed(endpoint.config_file(), with_spark=True)

    assert (found.code, found.to_mend()) == (3, {("ledger", str(root)): "fault"})


def test_driver_that_is_missing_on_executors_is_named(spark: SparkSession) -> None:
    found = list(spark_findings(spark, Needs(["duesweep", "no_such_driver"])))

    (bad,) = [f for f in found if is_to_mend(f)]
    error = "ModuleNotFoundError: No module named 'no_such_driver'"
    assert bad.found == f"no_such_driver cannot be loaded: {error}"
    assert (bad.check, bad.about) == ("executor-drivers", platform.node())


def test_session_of_the_command_that_is_set_up_badly(endpoint: Endpoint) -> None:
    endpoint.set_up()
    file = str(endpoint.config_file())

    variables = {"MASTER": "local[2]"}
    before = {*endpoint.folder.iterdir()}

    done = run_program(
        *(ROOT / "spark-submit.sh", "doctor", "--json", "--config", file),
        *("--conf", "spark.speculation=true"),
        env=os.environ | variables,
        cwd=endpoint.folder,
    )

    assert (done.code, done.err) == (3, "")
    # Spark makes a folder for its own tables.
    assert {*endpoint.folder.iterdir()} == before
    found = {finding["check"]: finding for finding in done.document["findings"]}
    # The user's settings count, here and in a sweep, which they stop.
    assert found["spark-speculation"]["severity"] == "fault"
    assert found["spark-task-retries"]["severity"] == "warning"
    assert "A task is tried once" in found["spark-task-retries"]["found"]
    assert found["executor-drivers"]["severity"] == "ok"


def test_sweep_is_refused_with_a_setting_that_would_break_the_promise(
    endpoint: Endpoint, spark: SparkSession
) -> None:
    """The test above starts a session with the setting; this one has it by name only."""
    endpoint.set_up("Billing").delay("Billing")
    told = spark.sparkContext._conf  # noqa: SLF001 - no public name changes it afterwards
    told.set("spark.speculation", "true")
    try:
        done = endpoint.run("sweep", sweep__engine="spark")
    finally:
        told.set("spark.speculation", "false")

    assert (done.code, done.out, len(endpoint.waiting())) == (2, "", 1)
    assert "spark.speculation is on" in done.err
    assert "Set spark.speculation=false" in done.err


_OVER_CONNECT = """
import json
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").config("spark.speculation", "true").getOrCreate()
from duesweep.operations.doctor_spark import spark_findings
from duesweep.config.adapters import Needs
found = spark_findings(spark, Needs(["duesweep", "psycopg", "pyarrow"]))
print(json.dumps({one.check: [one.severity, one.found] for one in found}))
"""


@pytest.mark.long
def test_session_over_connect_that_is_set_up_badly() -> None:
    with one_at_a_time(SPARK_CONNECT):
        done = run_python(
            "-c", _OVER_CONNECT,
            PYSPARK_PYTHON=sys.executable,
        )  # fmt: skip

    assert done.code == 0, done.err[-3_000:]
    found = json.loads(done.out.splitlines()[-1])
    severities = {check: severity for check, (severity, _) in found.items()}
    assert (severities["spark-speculation"], severities["spark-task-retries"]) == (
        "fault",
        "warning",
    )
    assert found["executor-drivers"] == ["ok", "All drivers can be loaded"]
