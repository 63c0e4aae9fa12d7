"""The line on the terminal that counts."""

import time
from io import StringIO
from types import SimpleNamespace

import pytest

from duesweep.cli import commands as module
from duesweep.cli.commands import counting


class _Stderr(StringIO):
    is_terminal = True

    def isatty(self) -> bool:
        return self.is_terminal


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock, which the test moves."""
    times = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: times[0])
    return times


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch) -> _Stderr:
    """A terminal. The module's own: pytest sets `sys.stderr` again after the fixtures."""
    stderr = _Stderr()
    monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=stderr))
    return stderr


def test_count_is_shown_after_a_second_now_and_then_and_is_gone_at_the_end(
    now: list[float], stderr: _Stderr
) -> None:
    with counting("looked at") as tell:
        for moment, count in ((0.5, 10), (1.0, 1_200), (1.2, 1_300), (1.6, 1_400)):
            now[0] = moment
            tell(count)

    assert stderr.getvalue() == "\r\x1b[Klooked at: 1,200\r\x1b[Klooked at: 1,400\r\x1b[K"


@pytest.mark.parametrize(("is_terminal", "seconds"), [(True, 0.9), (False, 100)])
def test_short_command_shows_nothing_and_so_does_one_without_a_terminal(
    now: list[float], stderr: _Stderr, *, is_terminal: bool, seconds: float
) -> None:
    stderr.is_terminal = is_terminal
    with counting("looked at") as tell:
        now[0] = seconds
        tell(5)

    assert stderr.getvalue() == ""
