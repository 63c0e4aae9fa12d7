"""`pause` and `resume`, killed at each step: they have done all of it, or nothing."""

import json
import os
import signal
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from duesweep.cli.app import main as run_command
from support.endpoint import Endpoint

_ROOT = Path(__file__).parents[2]
REASON = ("--reason", "the bank is down")
# Runs a command whose process is killed right after a call: a class, its method, its first argument
# ("" for any).
_KILLED = """
import importlib, os, signal, sys
module, owner, method, first, *arguments = sys.argv[1:]
target = getattr(importlib.import_module(module), owner)
original = getattr(target, method)

def killed(self, *given, **options):
    result = original(self, *given, **options)
    if first in ("", given[0]):
        os.kill(os.getpid(), signal.SIGKILL)
    return result

setattr(target, method, killed)
from duesweep.cli.app import main
main(arguments)
"""
_STATEMENTS = ("duesweep.drivers.postgresql.session", "PostgreSqlSession", "execute")
_COMMAND = ("duesweep.stores.sweeps", "SqlJournal")


@pytest.mark.parametrize(
    ("after", "is_done"),
    [
        ((*_STATEMENTS, "drop_old_pauses"), False),
        ((*_STATEMENTS, "pause"), False),
        ((*_COMMAND, "pause", ""), True),
    ],
    ids=["before it is written", "before COMMIT", "after COMMIT"],
)
def test_pause_that_is_killed_is_in_force_or_was_never_given(
    after: tuple[str, ...], endpoint: Endpoint, *, is_done: bool
) -> None:
    file = _set_up(endpoint)

    _run_and_kill(after, "pause", "Billing", *REASON, "--config", file)

    # No lock is left behind: the next command gets its turn, and sweeps obey what is there.
    assert _paused(file) == (["Billing"] if is_done else [])
    assert _document("sweep", "--config", file)["dispatched"] == (1 if is_done else 2)
    assert len(endpoint.waiting()) == is_done
    assert _document("pause", "Billing", *REASON, "--config", file)["pauses"]


@pytest.mark.parametrize(
    ("after", "is_done"),
    [((*_STATEMENTS, "resume"), False), ((*_COMMAND, "resume", ""), True)],
    ids=["before COMMIT", "after COMMIT"],
)
def test_resume_that_is_killed_leaves_the_pause_or_has_ended_it(
    after: tuple[str, ...], endpoint: Endpoint, *, is_done: bool
) -> None:
    file = _set_up(endpoint)
    _document("pause", "Billing", *REASON, "--config", file)

    _run_and_kill(after, "resume", "Billing", "--config", file)

    assert _paused(file) == ([] if is_done else ["Billing"])
    assert _document("sweep", "--config", file)["dispatched"] == (2 if is_done else 1)


def _set_up(endpoint: Endpoint) -> str:
    endpoint.set_up("Billing", "Shipping")
    endpoint.delay_many(2, ["Billing", "Shipping"])
    return str(endpoint.config_file())


def _run_and_kill(after: tuple[str, ...], *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, *after, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(_ROOT / "lib")},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def _paused(file: str) -> list[str]:
    return [one["what"] for one in _document("paused", "--config", file)["pauses"]]


def _document(*arguments: str) -> Any:
    """What a command of another process prints that lives: this one."""
    with redirect_stdout(StringIO()) as printed:
        assert run_command([*arguments, "--json"]) == 0
    return json.loads(printed.getvalue())
