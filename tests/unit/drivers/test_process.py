"""Whether a process is known to have ended."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from duesweep.drivers import process
from duesweep.drivers.process import is_gone, process_mark

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says it")


@pytest.fixture
def other() -> Iterator["subprocess.Popen[str]"]:
    """Another process, which tells its mark."""
    code = "from duesweep.drivers import process as p; print(p.process_mark(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        yield other
        other.kill()


def _mark(other: "subprocess.Popen[str]") -> str:
    assert other.stdout is not None
    return other.stdout.readline().strip()


def test_process_that_was_killed_is_gone_also_before_its_parent_knows(
    other: "subprocess.Popen[str]",
) -> None:
    mark = _mark(other)
    alive = is_gone(mark)
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    unknown = is_gone(mark)
    other.wait()

    assert (alive, unknown, is_gone(mark)) == (False, True, True)


def test_process_that_has_the_number_of_another_one_is_not_it() -> None:
    place, _, started = process_mark().rpartition(" ")

    assert not is_gone(f"{place} {started}")
    assert is_gone(f"{place} {int(started) - 1}")


@pytest.mark.parametrize("mark", ["", "7", "7 8", "boot pid:[1] 1 2", "a b c d e"])
def test_process_of_another_machine_or_container_is_not_known_to_be_gone(mark: str) -> None:
    assert not is_gone(mark)


def test_process_that_may_not_be_looked_at_is_not_known_to_be_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mark = process_mark()

    monkeypatch.setattr(os, "kill", Mock(side_effect=PermissionError))
    monkeypatch.setattr(process, "_stat", Mock(side_effect=FileNotFoundError))

    assert not is_gone(mark)


def test_system_that_does_not_say_it_gives_no_mark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(process, "_PROC", tmp_path)

    assert process_mark() == ""
    assert not is_gone(process_mark())
