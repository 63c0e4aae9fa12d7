"""The forms of `duesweep schedule`, read by the programs that they are for, or by their schemas."""

import ast
import shlex
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from cronsim import CronSim
from jinja2 import Environment

from duesweep.operations.schedule import Scheduled
from support.commands import run

AT = datetime(2026, 11, 23, tzinfo=UTC)
_ODD = "orders %d {{ x }} $HOME 'é'"


def _write(file: Path, endpoint: str, *lines: str) -> Path:
    ledger = file.parent / f"ledger-{endpoint}"
    given = ['store.kind = "postgresql"', f'store.endpoint = "{endpoint}"', *lines]
    file.write_text("\n".join([*given, f'ledger.root = "{ledger}"']))
    return file


@pytest.fixture(params=["plain", _ODD])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with a configuration; its name may need quotes wherever it stands."""
    found = tmp_path / request.param
    found.mkdir()
    _write(found / "duesweep.toml", "Sales.Orders")
    return found


@pytest.fixture
def form(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Prints a form."""
    monkeypatch.setenv("DUESWEEP_STORE__DSN", "postgresql://sweeper:secret@db/nsb")

    def printed(name: str, *options: str) -> str:
        ran = run("schedule", name, "--config", str(folder / "duesweep.toml"), *options)
        assert (ran.code, "secret@db" in ran.out, "DUESWEEP_STORE__DSN" in ran.out) == (
            0,
            False,
            True,
        )
        return ran.out

    return printed


def _assert_sweeps(words: list[str], file: Path, seconds: int) -> None:
    assert words[:4] == [sys.executable, "-P", "-m", "duesweep"]
    options = ["sweep", "--config", str(file), "--max-seconds", str(seconds), "--json"]
    assert words[4:] == options


@pytest.mark.parametrize(("every", "seconds"), [("1m", 60), ("5m", 300), ("2h", 7_200)])
def test_cron_starts_a_sweep_so_often_and_tidies_up_every_night(
    form: Any, folder: Path, every: str, seconds: int
) -> None:
    printed = form("cron", "--every", every).splitlines()
    line, nightly = (each for each in printed if not each.startswith("#"))
    fields, command = line.split("  ", 1)

    times = CronSim(fields, AT)
    first, second = next(times), next(times)
    assert (second - first).total_seconds() == seconds
    # Cron makes lines of bare percent signs; the shell gets the rest.
    assert "%" not in command.replace(r"\%", "")
    words = shlex.split(command.replace(r"\%", "%"))
    start, end = words.index("+a;") + 1, words.index(">>")
    _assert_sweeps(words[start:end], folder / "duesweep.toml", seconds - 10)
    environment = ["set", "-a;", ".", "/etc/duesweep/sales-orders.env;", "set", "+a;"]
    assert words[: len(environment)] == environment

    own, file = [sys.executable, "-P", "-m", "duesweep"], str(folder / "duesweep.toml")
    fields, command = nightly.split("  ", 1)
    assert next(CronSim(fields, AT)) == AT.replace(hour=3)
    assert shlex.split(command.replace(r"\%", "%")) == [
        *environment,
        *(*own, "maintain", "--config", file, "&&"),
        *(*own, "audit", "--config", file),
    ]


@pytest.mark.parametrize("every", ["7m", "30s", "25h", "1s"])
def test_cron_is_refused_what_it_cannot_say(tmp_path: Path, every: str) -> None:
    file = _write(tmp_path / "duesweep.toml", "Sales", 'store.dsn = "postgresql://db/nsb"')

    ran = run("schedule", "cron", "--config", str(file), "--every", every)

    assert (ran.code, "cron cannot run something every" in ran.err) == (2, True)


def test_systemd_accepts_the_units(form: Any, folder: Path, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not here; Debian's systemd has it")
    units = tmp_path / "units"
    units.mkdir()
    for part in form("systemd").split("# --- ")[1:]:
        name, _, text = part.partition("\n")
        (units / Path(name).name).write_text(text)

    names = {unit.name for unit in units.iterdir()}
    assert names == {
        "duesweep-sales-orders-watch.service",
        "duesweep-sales-orders.service",
        "duesweep-sales-orders.timer",
    }
    done = subprocess.run(
        [analyze, "verify", "--man=no", *map(str, units.iterdir())],
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if "duesweep" in line]
    assert (done.returncode, ours) == (0, [])
    watcher = (units / "duesweep-sales-orders-watch.service").read_text()
    assert "ExecReload=/bin/kill -HUP $MAINPID" in watcher.splitlines()
    service = (units / "duesweep-sales-orders.service").read_text()
    (start,) = [line for line in service.splitlines() if line.startswith("ExecStart=")]
    words = shlex.split(start.removeprefix("ExecStart=").replace("%%", "%").replace("$$", "$"))
    _assert_sweeps(words, folder / "duesweep.toml", 50)
    (path,) = [line for line in service.splitlines() if line.startswith("ReadWritePaths=")]
    (ledger,) = shlex.split(path.removeprefix("ReadWritePaths=").replace("%%", "%"))
    assert ledger == str(folder / "ledger-Sales.Orders")


def test_kubernetes_objects_fit_the_schema_and_may_do_little(form: Any, folder: Path) -> None:
    objects = list(yaml.safe_load_all(form("kubernetes")))

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
        assert container["envFrom"] == [{"secretRef": {"name": "duesweep-sales-orders"}}]
        paths = {each["mountPath"] for each in container["volumeMounts"]}
        assert paths == {"/etc/duesweep", "/tmp", str(folder / "ledger-Sales.Orders")}
    watch, sweep = (pod["containers"][0]["args"] for pod in pods)
    config = ["--config", "/etc/duesweep/duesweep.toml"]
    assert watch == ["watch", *config, "--host", "0.0.0.0", "--port", "10187"]
    assert sweep == ["sweep", *config, "--max-seconds", "50", "--json"]
    (watcher,) = pods[0]["containers"]
    probes = [watcher[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")]
    assert probes == ["/live", "/health"]


def test_airflow_form_is_python_and_its_command_survives_its_templates(
    form: Any, folder: Path
) -> None:
    tree = ast.parse(form("airflow"))
    (command,) = [
        ast.literal_eval(keyword.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "bash_command"
    ]
    seen = Environment(autoescape=False).from_string(command).render()
    _assert_sweeps(shlex.split(seen), folder / "duesweep.toml", 50)


def test_fleet_has_all_its_ledgers_and_the_folders_name(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet"
    fleet.mkdir()
    for name in ("sales", "billing"):
        _write(fleet / f"{name}.toml", name, 'store.dsn = "postgresql://db/nsb"')

    text = run("schedule", "systemd", "--config", str(fleet), "--set", "sweep.slices=2").out

    for name in ("sales", "billing"):
        assert text.count(f"ReadWritePaths={fleet}/ledger-{name}") == 2
    assert f"sweep --config {fleet} --set sweep.slices=2 --max-seconds 50" in text
    assert "duesweep-fleet.timer" in text


@pytest.mark.parametrize(
    ("title", "name"),
    [("Sales.Orders", "sales-orders"), ("Ünï", "n"), ("éé", "endpoint"), ("a" * 60, "a" * 40)],
)
def test_name_is_one_that_all_of_them_take(title: str, name: str) -> None:
    assert _scheduled(title).name == name


def _scheduled(title: str) -> Scheduled:
    every, config = timedelta(minutes=1), "/x/duesweep.toml"
    nothing: dict[str, Any] = {"overrides": (), "variables": (), "ledgers": (), "is_folder": False}
    return Scheduled(title=title, command=["duesweep"], config=config, every=every, **nothing)
