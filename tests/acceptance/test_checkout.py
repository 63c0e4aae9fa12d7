"""A checkout, as its first user and as another one start it."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from duesweep.cli.app import main

_ROOT = Path(__file__).parents[2]
_NOBODY = 65534


def _another_user() -> Any:
    return {"user": _NOBODY, "group": _NOBODY, "extra_groups": ()} if os.getuid() == 0 else {}


def _run_as_another(
    checkout: Path, *arguments: str, environment: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """Run `./duesweep` as a user who may not write into the checkout; only root can be another."""
    return _as_another([str(checkout / "duesweep"), *arguments], environment)


def _as_another(
    command: list[str], environment: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        cwd="/",
        env=environment,
        check=False,
        **_another_user(),
    )


@pytest.fixture
def bare(open_folder: Path) -> Path:
    """A checkout that nobody has started yet, and that only its owner could change."""
    checkout = open_folder / "checkout"
    checkout.mkdir()
    for name in ("duesweep", "spark-submit.sh", "requirements.lock"):
        shutil.copy(_ROOT / name, checkout / name, follow_symlinks=False)
    shutil.copytree(_ROOT / "scripts", checkout / "scripts")
    checkout.chmod(0o555)
    return checkout


def test_duesweep_of_a_checkout_is_the_command() -> None:
    done = subprocess.run(
        [str(_ROOT / "duesweep"), "--version"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd="/",
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("duesweep ")


def test_checkout_that_is_ready_needs_no_right_to_write_and_no_home() -> None:
    probe = [str(_ROOT / ".venv" / "bin" / "python"), "-c", ""]
    try:
        subprocess.run(probe, check=True, cwd="/", **_another_user())
    except OSError:
        pytest.skip("the checkout, or its Python, is in a folder that other users may not enter")
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}

    done = _run_as_another(_ROOT, "--version", environment=environment)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("duesweep ")


def test_checkout_that_is_not_ready_tells_who_has_to_start_it(bare: Path) -> None:
    done = _run_as_another(bare, "config")

    assert (done.returncode, done.stdout) == (2, "")
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith(f"{bare} is not ready, and this user may not write there: run ")
    assert f"{bare}/spark-submit.sh doctor" in sentence


def test_changed_sources_tell_who_has_to_pack_them_again(bare: Path) -> None:
    bare.chmod(0o755)
    (bare / "lib" / "duesweep").mkdir(parents=True)
    bare.chmod(0o555)
    # The Python of the tests may be out of another user's reach.
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("this machine has no Python for all users")

    done = _as_another([python, str(bare / "scripts" / "build_package.py")])

    assert (done.returncode, done.stdout) == (2, "")
    assert f"as the owner of {bare}" in done.stderr
    assert "Traceback" not in done.stderr


def test_demonstration_names_the_folder_that_it_may_not_write_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()

    assert main(["demo", "--folder", str(file / "demo")]) == 2

    (sentence,) = capsys.readouterr().err.splitlines()
    assert f"cannot write into {file}/demo: Not a directory" in sentence
    assert "--folder" in sentence


def test_service_that_cannot_be_fetched_says_what_to_install(bare: Path, tmp_path: Path) -> None:
    bare.chmod(0o755)
    (bare / ".venv").symlink_to(_ROOT / ".venv")
    programs = tmp_path / "bin"
    programs.mkdir()
    # Without `find` the broker of this machine is not found either.
    for name in ("bash", "cat", "cmp", "dirname", "mkdir", "readlink", "rm"):
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)

    done = subprocess.run(
        [str(bare / "scripts" / "services.sh"), "rabbitmq"],
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout) == (2, "")
    (sentence,) = done.stderr.splitlines()
    assert sentence == (
        "rabbitmq is missing, and this machine has no apt-get to fetch it with: install what "
        "Debian has as rabbitmq-server."
    )


def test_service_that_is_there_leaves_what_another_start_is_fetching(
    bare: Path, tmp_path: Path
) -> None:
    # This machine has a broker, as `find` has it.
    (tmp_path / "find").write_text("#!/bin/sh\necho rabbitmq-server\n", "utf-8")
    (tmp_path / "find").chmod(0o755)
    bare.chmod(0o755)
    (bare / ".venv").symlink_to(_ROOT / ".venv")
    fetching = bare / ".cache" / "services" / "apt"
    fetching.mkdir(parents=True)

    done = subprocess.run(
        [str(bare / "scripts" / "services.sh"), "rabbitmq"],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert fetching.exists()
