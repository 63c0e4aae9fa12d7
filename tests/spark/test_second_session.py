"""A second session in a process: after one that was stopped, as in a notebook, or did not start."""

from pathlib import Path

import pytest

from support.commands import run_python
from support.endpoint import Endpoint

_SWEEPS_TWICE = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from duesweep import Duesweep, load_config

sales = Duesweep(load_config(Path(sys.argv[1])))
for _ in range(2):
    run = sales.sweep(max_messages=3)
    print(run.report.dispatched, run.report.engine, run.report.reason)
    SparkSession.getActiveSession().stop()
"""


@pytest.mark.long
def test_sweep_after_a_session_that_was_stopped_starts_one_with_the_same_python(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(6)
    # Spark's own choice.
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)

    done = run_python(
        *("-c", _SWEEPS_TWICE, endpoint.config_file(sweep__engine="spark")),
        PATH=f"{tmp_path}:/usr/bin:/bin",
    )

    assert done.out.splitlines() == ["3 spark None"] * 2, done.told[-3_000:]


_TRIES_TWICE = """
import sys
from pathlib import Path
from duesweep import Duesweep, load_config
from duesweep.core import submit
from duesweep.core.errors import SparkError

submit.command_line, _ = submit.take_options(["--conf", "spark.sql.ansi.enabled=maybe"])
sales = Duesweep(load_config(Path(sys.argv[1])))
for _ in range(2):
    try:
        sales.sweep()
    except SparkError as error:
        print(error)
"""


@pytest.mark.long
# PySpark would never end.
@pytest.mark.timeout(150)
def test_setting_of_a_value_that_spark_refuses_ends_the_sweep(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing").delay("Billing")

    done = run_python("-c", _TRIES_TWICE, endpoint.config_file(sweep__engine="spark"))

    assert done.out.count("The value 'maybe' in the config") == 2, done.told[-3_000:]
    assert len(endpoint.waiting()) == 1
