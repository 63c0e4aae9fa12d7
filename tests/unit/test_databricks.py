"""The bundle for Databricks, as far as it can be read without Databricks."""

import os
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

_ROOT = Path(__file__).parents[2]
_BUNDLE = _ROOT / "conf" / "databricks" / "databricks.yml"


@pytest.fixture
def jobs() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(_BUNDLE.read_text())["resources"]["jobs"]
    return found


def test_jobs_run_one_at_a_time_and_the_file_that_is_there(jobs: dict[str, Any]) -> None:
    assert set(jobs) == {"sweep", "sweep_serverless"}
    for job in jobs.values():
        assert (job["max_concurrent_runs"], job["queue"]) == (1, {"enabled": False})
        (task,) = job["tasks"]
        assert task["max_retries"] == 0
        assert (_BUNDLE.parent / task["spark_python_task"]["python_file"]).is_file()
    assert jobs["sweep_serverless"]["schedule"]["pause_status"] == "PAUSED"


def test_libraries_are_those_of_the_lock(jobs: dict[str, Any]) -> None:
    libraries = jobs["sweep"]["tasks"][0]["libraries"]
    found = {each["maven"]["coordinates"] for each in libraries if "maven" in each}

    # Databricks brings Delta.
    locked = (_ROOT / "jars.lock").read_text().splitlines()
    drivers = {line for line in locked if ":" in line and line[0] not in "# "} - {""}
    assert found == {each for each in drivers if "delta" not in each}


def test_job_takes_its_settings_from_the_scope_and_sweeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secrets = {"DUESWEEP_STORE__DSN": "postgresql://db/nsb", "OTHER": "nobody's business"}
    runtime = ModuleType("databricks.sdk.runtime")
    runtime.dbutils = SimpleNamespace(  # type: ignore[attr-defined]
        secrets=SimpleNamespace(
            list=lambda _: [SimpleNamespace(key=key) for key in secrets],
            get=lambda _, key: secrets[key],
        )
    )
    for name in ("databricks", "databricks.sdk"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "databricks.sdk.runtime", runtime)
    # So that it is as it was afterwards.
    monkeypatch.setenv("DUESWEEP_STORE__DSN", "")
    job = runpy.run_path(str(_ROOT / "jobs" / "run_sweep.py"))

    left = job["take_secrets"](["--secret-scope", "duesweep", "--json"])

    assert left == ["--json"]
    assert os.environ["DUESWEEP_STORE__DSN"] == "postgresql://db/nsb"
    assert "OTHER" not in os.environ
    assert job["take_secrets"](["--json"]) == ["--json"]
