"""The files of conf/schedule, read by the programs that they are for, or by their schemas."""

import shlex
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import kubernetes_validate
import pytest
import yaml
from cronsim import CronSim

from duesweep.core.errors import ExitCode
from support.commands import ROOT, run

FOLDER = ROOT / "conf" / "schedule"
PROGRAM, FILE = "/opt/duesweep/bin/duesweep", "/etc/duesweep/duesweep.toml"
SWEEP = ["sweep", "--config", FILE, "--max-seconds", "50", "--json"]
# A sweep's exit codes that need no person. docs/exit-codes.md says so.
GOOD = {ExitCode.DONE, ExitCode.WORK_LEFT}
AT = datetime(2026, 11, 23, tzinfo=UTC)


def _text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _values(unit: str, key: str) -> list[str]:
    lines = _text(unit).splitlines()
    return [line.removeprefix(f"{key}=") for line in lines if line.startswith(f"{key}=")]


def _objects() -> list[Any]:
    return list(yaml.safe_load_all(_text("kubernetes.yaml")))


def _task(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The task of the DAG, which is imported as Airflow does, and the DAG's own settings."""
    found: dict[str, Any] = {}

    class Dag:
        def __init__(self, **settings: Any) -> None:
            found["dag"] = settings

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            pass

    standard = "airflow.providers.standard"
    for name in ("airflow", "airflow.providers", standard, f"{standard}.operators"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    bash: Any = SimpleNamespace(BashOperator=lambda **settings: found.update(settings))
    monkeypatch.setitem(sys.modules, f"{standard}.operators.bash", bash)
    sdk: Any = SimpleNamespace(DAG=Dag)
    monkeypatch.setitem(sys.modules, "airflow.sdk", sdk)
    exec(compile(_text("airflow.py"), "airflow.py", "exec"), {})
    return found


def test_cron_starts_a_sweep_each_minute_and_tidies_up_every_night() -> None:
    line, nightly = (each for each in _text("crontab").splitlines() if not each.startswith("#"))
    fields, command = line.split("  ", 1)

    times = CronSim(fields, AT)
    assert next(times) + timedelta(minutes=1) == next(times)
    # Cron makes lines of bare percent signs.
    assert "%" not in line + nightly
    environment = ["set", "-a;", ".", "/etc/duesweep/duesweep.env;", "set", "+a;"]
    words = shlex.split(command)
    assert words[: words.index(">>")] == [*environment, PROGRAM, *SWEEP]
    fields, command = nightly.split("  ", 1)
    assert next(CronSim(fields, AT)) == AT.replace(hour=3)
    upkeep = [*(PROGRAM, "maintain", "--config", FILE, "&&"), *(PROGRAM, "audit", "--config", FILE)]
    assert shlex.split(command) == [*environment, *upkeep]


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not here; Debian's systemd has it")
    names = ("duesweep.service", "duesweep.timer", "duesweep-watch.service")
    for name in names:
        # It looks for the program.
        (tmp_path / name).write_text(_text(name).replace(PROGRAM, sys.executable))

    done = subprocess.run(
        [analyze, "verify", "--man=no", *(str(tmp_path / name) for name in names)],
        capture_output=True,
        text=True,
        check=False,
    )

    ours = [line for line in done.stderr.splitlines() if "duesweep" in line]
    assert (done.returncode, ours) == (0, [])
    assert _values("duesweep.service", "ExecStart") == [shlex.join([PROGRAM, *SWEEP])]
    watch = f"{PROGRAM} watch --config {FILE} --port 10187"
    assert _values("duesweep-watch.service", "ExecStart") == [watch]


def test_units_may_write_the_files_that_the_pages_name() -> None:
    """All else is read-only for them (ProtectSystem)."""
    health = "--health-file /run/duesweep/healthy"
    textfile = 'textfile = "/var/lib/node_exporter/sales.prom"'

    assert health in (ROOT / "docs" / "watch.md").read_text(encoding="utf-8")
    assert _values("duesweep-watch.service", "RuntimeDirectory") == ["duesweep"]
    assert textfile in (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert _values("duesweep.service", "# ReadWritePaths") == ["/var/lib/node_exporter"]


def test_kubernetes_objects_fit_the_schema_and_may_do_little() -> None:
    objects = _objects()

    assert [each["kind"] for each in objects] == ["Deployment", "CronJob"]
    for each in objects:
        kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)
    deployment, job = objects
    pods = [deployment["spec"]["template"]["spec"]]
    pods.append(job["spec"]["jobTemplate"]["spec"]["template"]["spec"])
    for pod in pods:
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["envFrom"] == [{"secretRef": {"name": "duesweep"}}]
        paths = {each["mountPath"] for each in container["volumeMounts"]}
        assert paths == {"/etc/duesweep", "/tmp", "/var/lib/duesweep"}
    watch, sweep = (pod["containers"][0]["args"] for pod in pods)
    assert watch == ["watch", "--config", FILE, "--host", "0.0.0.0", "--port", "10187"]
    assert sweep == SWEEP
    (watcher,) = pods[0]["containers"]
    probes = [watcher[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")]
    assert probes == ["/live", "/health"]


def test_airflow_starts_one_sweep_at_a_time_and_its_command_is_no_template(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = _task(monkeypatch)

    assert shlex.split(task["bash_command"]) == [PROGRAM, *SWEEP]
    # Airflow also reads it as a template of Jinja.
    assert "{" not in task["bash_command"]
    assert (task["dag"]["max_active_runs"], task["dag"]["catchup"]) == (1, False)
    assert (task["retries"], task["append_env"]) == (0, True)


def test_same_exit_codes_are_good_ones_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    (given,) = _values("duesweep.service", "SuccessExitStatus")
    job = _objects()[1]["spec"]["jobTemplate"]["spec"]
    (rule,) = job["podFailurePolicy"]["rules"]
    airflows_own = 99

    assert {0, *map(int, given.split())} == GOOD
    assert {0, *rule["onExitCodes"]["values"]} == GOOD
    assert (rule["action"], rule["onExitCodes"]["operator"]) == ("Ignore", "In")
    assert {0, *_task(monkeypatch)["skip_on_exit_code"]} - {airflows_own} == GOOD
    for name in ("crontab", "duesweep.service", "kubernetes.yaml", "airflow.py"):
        assert "2, 3 and 5 need a person" in " ".join(_text(name).replace("#", "").split()), name
    page = " ".join((ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8").split())
    assert "A scheduler takes 0 and 4 for success; 2, 3 and 5 need a person" in page


@pytest.mark.parametrize(
    "words", [SWEEP, ["watch", "--config", FILE, "--host", "0.0.0.0", "--port", "10187"]]
)
def test_commands_have_these_options(words: list[str]) -> None:
    shown = run(words[0], "--help").out

    assert all(word in shown for word in words if word.startswith("--"))
