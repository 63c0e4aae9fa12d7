"""The command in a checkout, started by any user, also by cron."""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.commands import ROOT, Ran, run, run_program
from support.endpoint import Endpoint

_NOBODY = 65534


def _another_user() -> Any:
    return {"user": _NOBODY, "group": _NOBODY, "extra_groups": ()} if os.getuid() == 0 else {}


def _as_another(*command: object, env: Mapping[str, str] = os.environ) -> Ran:
    """Run a program as a user who may not write into the checkout; only root can be another."""
    return run_program(*command, env=env, cwd="/", **_another_user())


@pytest.fixture
def bare(open_folder: Path) -> Path:
    """A checkout that was not started yet, and that only its owner could change."""
    checkout = open_folder / "checkout"
    checkout.mkdir()
    for name in ("duesweep", "spark-submit.sh", "requirements.lock"):
        shutil.copy(ROOT / name, checkout / name, follow_symlinks=False)
    shutil.copytree(ROOT / "scripts", checkout / "scripts")
    checkout.chmod(0o555)
    return checkout


def test_duesweep_of_a_checkout_is_the_command() -> None:
    done = run_program(ROOT / "duesweep", "--version", cwd="/")

    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("duesweep ")


def test_checkout_that_is_ready_needs_no_right_to_write_and_no_home() -> None:
    try:
        _as_another(ROOT / ".venv" / "bin" / "python", "-c", "")
    except OSError:
        pytest.skip("the checkout, or its Python, is in a folder that other users may not enter")
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}

    done = _as_another(ROOT / "duesweep", "--version", env=environment)

    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("duesweep ")


def test_checkout_that_is_not_ready_tells_who_has_to_start_it(bare: Path) -> None:
    done = _as_another(bare / "duesweep", "config")

    assert (done.code, done.out) == (2, "")
    (sentence,) = done.err.splitlines()
    assert sentence.startswith(f"{bare} is not ready, and this user may not write there: run ")
    assert f"{bare}/spark-submit.sh doctor" in sentence


@pytest.mark.parametrize(
    ("copy", "change", "ready_for"),
    [
        ("requirements.lock", "", {"program", "tests"}),
        ("program.lock", "", {"program"}),
        ("program.lock", "# renewed by another script\n", {"program"}),
        ("program.lock", "another==1\n", set()),
    ],
)
def test_environment_serves_whom_its_lock_is_for(
    copy: str, change: str, ready_for: set[str], bare: Path
) -> None:
    bare.chmod(0o755)
    python = bare / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n", "utf-8")
    python.chmod(0o755)
    lock = bare / "requirements.lock"
    (bare / ".venv" / copy).write_text(f"{change}{lock.read_text('utf-8')}", "utf-8")
    bare.chmod(0o555)
    source = 'root=$1; source "$root/scripts/environment.sh"; need "$2"; echo "$python"'

    for what in ("program", "tests"):
        done = _as_another("bash", "-euo", "pipefail", "-c", source, "bash", bare, what)

        if what in ready_for:
            assert (done.code, done.out, done.err) == (0, f"{python}\n", "")
        else:
            assert (done.code, done.out) == (2, "")
            assert done.err.startswith(f"{bare} is not ready, and this user may not write there")


def test_environment_whose_python_is_gone_is_made_again(bare: Path) -> None:
    lock = bare / "requirements.lock"
    copy = bare / ".venv" / "requirements.lock"
    bare.chmod(0o755)
    (bare / ".venv" / "bin").mkdir(parents=True)
    copy.write_bytes(lock.read_bytes())
    python = bare / ".venv" / "bin" / "python"
    paths = f"Path({str(lock)!r}), Path({str(copy)!r})"
    source = f"from pathlib import Path; import environment as e; print(e._is_made_from({paths}))"
    found = []

    for target in (sys.executable, "/nothing/is/here"):
        python.unlink(missing_ok=True)
        python.symlink_to(target)
        environment = os.environ | {"PYTHONPATH": str(bare / "scripts")}
        found.append(run_program(sys.executable, "-c", source, env=environment).out.strip())

    assert found == ["True", "False"]


@pytest.mark.parametrize("command", ["sweep", "handover", "--master local[2] sweep --config x"])
def test_checkout_that_is_not_ready_prints_a_document_where_one_is_asked_for(
    command: str, bare: Path
) -> None:
    done = _as_another(bare / "spark-submit.sh", *command.split(), "--json")

    assert (done.code, done.document["exit_code"], done.document["outcome"]) == (2, 2, "error")
    assert len(done.err.splitlines()) == 1


def test_changed_sources_tell_who_has_to_pack_them_again(bare: Path) -> None:
    bare.chmod(0o755)
    (bare / "lib" / "duesweep").mkdir(parents=True)
    bare.chmod(0o555)
    # The Python of the tests may be out of another user's reach.
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("this machine has no Python for all users")

    done = _as_another(python, bare / "scripts" / "build_package.py")

    assert (done.code, done.out) == (2, "")
    assert f"as the owner of {bare}" in done.err
    assert "Traceback" not in done.err


def test_demonstration_names_the_folder_that_it_may_not_write_to(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    ran = run("demo", "--folder", str(file / "demo"))

    (sentence,) = ran.err.splitlines()
    assert ran.code == 2
    assert f"cannot write into {file}/demo: Not a directory" in sentence
    assert "--folder" in sentence


def test_service_that_cannot_be_fetched_says_what_to_install(bare: Path, tmp_path: Path) -> None:
    bare.chmod(0o755)
    (bare / ".venv").symlink_to(ROOT / ".venv")
    programs = tmp_path / "bin"
    programs.mkdir()
    services = bare / "scripts" / "services.py"
    # The brokers of this machine are out of sight.
    services.write_text(
        re.sub(r"(?<=_BROKERS = ).*", '("/nonexistent",)', services.read_text("utf-8")), "utf-8"
    )

    done = run_program(sys.executable, services, "rabbitmq", env={"PATH": str(programs)})

    assert (done.code, done.out) == (2, "")
    (sentence,) = done.err.splitlines()
    assert sentence == (
        "rabbitmq is missing, and this machine has no apt-get to fetch it with: install what "
        "Debian has as rabbitmq-server."
    )


def test_service_that_is_there_leaves_what_another_start_is_fetching(
    bare: Path, tmp_path: Path
) -> None:
    broker = tmp_path / "its version" / "sbin" / "rabbitmq-server"
    broker.parent.mkdir(parents=True)
    broker.touch()
    services = bare / "scripts" / "services.py"
    services.write_text(
        re.sub(r"(?<=_BROKERS = ).*", f"({str(tmp_path)!r},)", services.read_text("utf-8")), "utf-8"
    )
    bare.chmod(0o755)
    fetching = bare / ".cache" / "services" / "apt"
    fetching.mkdir(parents=True)

    done = run_program(sys.executable, services, "rabbitmq")

    assert (done.code, done.out, done.err) == (0, "", "")
    assert fetching.exists()


def test_lines_work_with_the_environment_of_cron(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.set_up("Billing").delay_many(3, ["Billing"])
    file = endpoint.config_file()
    text = file.read_text(encoding="utf-8")
    without_dsn = re.sub(r"^.*dsn.*\n", "", text, flags=re.MULTILINE)
    assert without_dsn != text
    file.write_text(without_dsn, encoding="utf-8")
    environment = tmp_path / "of cron.env"
    environment.write_text(
        f"DUESWEEP_STORE__DSN={shlex.quote(endpoint.dsn)}\n"
        # Only for this checkout, which may not be installed.
        f"PYTHONPATH={shlex.quote(str(ROOT / 'lib'))}\n",
        encoding="utf-8",
    )
    filled_in = {
        "/etc/duesweep/duesweep.toml": str(file),
        "/etc/duesweep/duesweep.env": shlex.quote(str(environment)),
        "/opt/duesweep/bin/duesweep": shlex.join([sys.executable, "-P", "-m", "duesweep"]),
        "/var/log/duesweep": str(tmp_path),
    }
    crontab = (ROOT / "conf" / "schedule" / "crontab").read_text(encoding="utf-8")

    for line in (each for each in crontab.splitlines() if not each.startswith("#")):
        command = line.split("  ", 1)[1]
        for place, own in filled_in.items():
            command = command.replace(place, own)
        done = run_program("/bin/sh", "-c", command, env={"PATH": "/usr/bin:/bin"}, cwd=tmp_path)
        assert (done.code, done.err) == (0, ""), line

    (swept,) = (tmp_path / "sweeps.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(swept)["dispatched"] == 3
    assert endpoint.waiting() == []
