"""The wheel in virtual environments of its own, as pip installs it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.commands import ROOT, Ran, run_program
from support.endpoint import Endpoint

_UV = Path(sys.executable).with_name("uv")


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the wheel. `options` are for `subprocess.run`."""

    python: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def run(self, line: str, endpoint: Endpoint, **settings: object) -> Ran:
        file = endpoint.config_file(retry__max_attempts=1, **settings)
        file.chmod(0o644)
        home = endpoint.folder / "home"
        home.mkdir(exist_ok=True)
        # Nothing of the tests' own environment, and no Java.
        variables = {"PATH": "/usr/bin:/bin", "HOME": str(home), "JAVA_HOME": "/nonexistent"}
        command = [self.python.with_name("duesweep"), *line.split(), "--config", file]
        environment = variables | {**self.variables}
        return run_program(*command, env=environment, cwd=endpoint.folder, **self.options)


def uv(*arguments: object) -> str:
    done = subprocess.run(
        [_UV, "--quiet", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def install(folder: Path, *packages: object, python: str = sys.executable) -> Installed:
    """An environment in a folder with these packages, and options of uv."""
    uv("venv", "--python", python, folder)
    installed = Installed(folder / "bin" / "python")
    uv("pip", "install", "--python", installed.python, *packages)
    return installed


def python_of(version: str) -> str:
    """A Python of this machine of a version such as 3.12. If it is missing, skips the test."""
    done = subprocess.run(
        [_UV, "python", "find", "--no-python-downloads", version],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return done.stdout.strip()
    versions = Path(os.environ.get("PYENV_ROOT", "~/.pyenv"), "versions").expanduser()
    for python in sorted(versions.glob(f"{version}.*/bin/python")):
        return str(python)
    pytest.skip(f"Python {version} is not installed (docs/testing.md)")


def with_extras(wheel: Path, *extras: str) -> str:
    """What pip is to install: a wheel with extras."""
    return f"duesweep[{','.join(extras)}] @ {wheel.as_uri()}"


def delay_backlog(endpoint: Endpoint, messages: int, queue: str = "Billing") -> None:
    """Set the endpoint up, and let it have this many due messages."""
    endpoint.set_up(queue).delay(queue)
    endpoint.execute(
        f"INSERT INTO {endpoint.delayed} (id, headers, body, due) SELECT gen_random_uuid(), "
        f"headers, body, due FROM {endpoint.delayed}, generate_series(2, {messages})"
    )


def build_wheel(source: Path, folder: Path) -> Path:
    uv("build", "--wheel", "--out-dir", folder, source)
    (built,) = folder.glob("*.whl")
    return built


def machines_java() -> Mapping[str, str]:
    """Variables with the Java of this machine. If it is missing, skips the test."""
    java = shutil.which("java")
    if java is None:
        pytest.skip("Java is not installed (docs/testing.md)")
    return {"JAVA_HOME": str(Path(java).resolve().parents[1])}


def copy_of_the_checkout(folder: Path) -> Path:
    """What git knows of this checkout, as a clone has it."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists() or (ROOT / name).is_symlink():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target, follow_symlinks=False)
    return folder
