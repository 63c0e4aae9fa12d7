"""The Dockerfile. No container engine is needed to read it, nor is there one in the tests."""

import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[3]


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
