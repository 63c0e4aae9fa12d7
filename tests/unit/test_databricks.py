"""The bundle for Databricks and the Dockerfile, as far as they can be read without either."""

import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

from duesweep.cli.app import main
from duesweep.drivers.jars import read_lock

_ROOT = Path(__file__).parents[2]
_BUNDLE = _ROOT / "conf" / "databricks" / "databricks.yml"


@pytest.fixture
def jobs() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(_BUNDLE.read_text())["resources"]["jobs"]
    return found


def test_jobs_run_one_at_a_time_and_the_file_that_is_there(jobs: dict[str, Any]) -> None:
    assert set(jobs) == {"setup", "sweep", "sweep_serverless"}
    for job in jobs.values():
        assert (job["max_concurrent_runs"], job["queue"]) == (1, {"enabled": False})
        (task,) = job["tasks"]
        assert task["max_retries"] == 0
        assert (_BUNDLE.parent / task["spark_python_task"]["python_file"]).is_file()
    assert "schedule" not in jobs["setup"]
    assert jobs["sweep_serverless"]["schedule"]["pause_status"] == "PAUSED"


def test_commands_of_the_jobs_take_their_parameters(
    jobs: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for job in jobs.values():
        (task,) = job["tasks"]
        command, *options = task["spark_python_task"]["parameters"]
        scope = options.index("--secret-scope")
        del options[scope : scope + 2]

        # A sentence on the file says that all else was understood.
        assert main([command, *options]) == 2
        assert "${var.config}" in capsys.readouterr().err
    # Its tasks reach no database there.
    assert "sweep.engine=process" in options


def test_files_of_the_bundle_are_inside_of_what_is_uploaded() -> None:
    """The command line refuses a job's file outside of the folders under `sync`."""
    bundle = yaml.safe_load(_BUNDLE.read_text())
    uploaded = [(_BUNDLE.parent / path).resolve() for path in bundle["sync"]["paths"]]
    files = [
        (_BUNDLE.parent / task["spark_python_task"]["python_file"]).resolve()
        for job in bundle["resources"]["jobs"].values()
        for task in job["tasks"]
    ]

    assert all(any(file.is_relative_to(folder) for folder in uploaded) for file in files)
    assert uploaded[0] == _BUNDLE.parent
    # Else all users of the workspace could change the job that has the database's password.
    folder = bundle["targets"]["prod"]["workspace"]["root_path"]
    assert folder.startswith("/Workspace/Users/${workspace.current_user.userName}/")


def test_paths_of_the_bundle_are_in_the_tree() -> None:
    words = _BUNDLE.read_text().split()
    paths = {word for word in words if word.startswith("../") and "dist/" not in word}

    assert {"../..", "../../jobs/run_sweep.py"} <= paths
    assert [path for path in paths if not (_BUNDLE.parent / path).exists()] == []


def test_wheel_is_the_one_that_was_just_built(tmp_path: Path) -> None:
    """No older version, and not the contracts, which bring pytest."""
    bundle = yaml.safe_load(_BUNDLE.read_text())
    jobs, dist = bundle["resources"]["jobs"], tmp_path / "dist"
    dist.mkdir()
    for name in ("duesweep-0.9.0-py3-none-any.whl", "duesweep_testing-1.0.0-py3-none-any.whl"):
        (dist / name).touch()
    # In place of the real one.
    (tmp_path / "uv").write_text("#!/bin/sh\ntouch dist/duesweep-1.0.0-py3-none-any.whl\n")
    (tmp_path / "uv").chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    build = bundle["artifacts"]["duesweep"]["build"]

    subprocess.run(["sh", "-c", build], cwd=tmp_path, env=environment, check=True)

    (spec,) = {
        *(each["whl"] for each in jobs["sweep"]["tasks"][0]["libraries"] if "whl" in each),
        *jobs["sweep_serverless"]["environments"][0]["spec"]["dependencies"],
    }
    deployed = [wheel.name for wheel in dist.glob(Path(spec).name)]
    assert deployed == ["duesweep-1.0.0-py3-none-any.whl"]


def test_libraries_are_those_of_the_lock(jobs: dict[str, Any]) -> None:
    libraries = jobs["sweep"]["tasks"][0]["libraries"]
    found = {each["maven"]["coordinates"] for each in libraries if "maven" in each}

    # Databricks brings Delta.
    assert found == {jar.coordinate for jar in read_lock()["every"]}


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


def test_linter_has_nothing_to_say() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [linter, _ROOT / "Dockerfile"], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_all_that_it_copies_is_there_and_is_not_ignored() -> None:
    text = (_ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    kept = [line.removeprefix("!") for line in (_ROOT / ".dockerignore").read_text().split()]
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["COPY"] and not words[1].startswith("--"):
            for name in words[1:-1]:
                assert (_ROOT / name).exists(), name
                assert name in kept, name


def test_it_runs_as_nobody_special() -> None:
    lines = (_ROOT / "Dockerfile").read_text().splitlines()
    last = [line for line in lines if line.startswith("USER ")][-1]

    assert int(last.split()[1]) > 0
