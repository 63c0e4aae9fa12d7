"""The line of a terminal that passes: a count, or a step of a long command."""

from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest

from duesweep.core import logs, passing
from duesweep.core.errors import StoreError
from duesweep.core.passing import passing_line, printing
from duesweep.report.progress import sweeping_line
from duesweep.report.tables import print_blocks
from duesweep.report.text import Column, Facts, Line, Note, Table, Wrapped
from support.waiting import until


class _Terminal(StringIO):
    """Standard output and standard error of a terminal."""

    is_terminal = True

    def isatty(self) -> bool:
        return self.is_terminal

    @property
    def lines(self) -> list[str]:
        """As a person sees them."""
        return [each.split("\r\x1b[K")[-1] for each in self.getvalue().split("\n")]


@contextmanager
def _on_a_terminal(*, is_terminal: bool = True) -> Iterator[_Terminal]:
    terminal = _Terminal()
    terminal.is_terminal = is_terminal
    with redirect_stdout(terminal), redirect_stderr(terminal):
        yield terminal


@pytest.fixture
def _shown_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(passing, "EACH_SECONDS", 0.001)


@pytest.mark.usefixtures("_shown_at_once")
def test_count_is_shown_and_is_gone_at_the_end() -> None:
    with _on_a_terminal() as terminal:
        with passing_line(logs.current_step):
            for count in (1_200, 1_400):
                logs.step(f"looked at: {count:,}")
                until(lambda count=count: terminal.lines == [f"looked at: {count:,}"])

        assert terminal.lines == [""]


@pytest.mark.parametrize(("is_terminal", "seconds"), [(True, 600.0), (False, 0.0)])
def test_short_command_shows_nothing_and_so_does_one_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, seconds: float
) -> None:
    monkeypatch.setattr(passing, "FIRST_SECONDS", seconds)
    with _on_a_terminal(is_terminal=is_terminal) as terminal:
        with passing_line(logs.current_step):
            logs.step("looked at: 5")

        assert terminal.getvalue() == ""


@pytest.mark.usefixtures("_shown_at_once")
@pytest.mark.parametrize(
    ("block", "seen"),
    [
        (Line("A line"), ["A line"]),
        (Note("a remark"), ["duesweep: a remark"]),
        (Facts({"name": "value"}), ["  name  value"]),
        (Table([Column("key")], [["1"], ["2"]]), ["key", "1", "2"]),
        (Wrapped([["fault", "no queue"]]), ["fault  no queue"]),
    ],
)
def test_nothing_of_the_line_is_in_a_block_and_it_comes_again_below(
    block: Line | Note | Facts | Table | Wrapped,
    seen: list[str],
) -> None:
    with _on_a_terminal() as terminal:
        with passing_line(lambda: "looked at: 1,000"):
            until(lambda: terminal.lines == ["looked at: 1,000"])
            print_blocks([block])
            until(lambda: terminal.lines[-1] == "looked at: 1,000")

        lines = [line.replace("\x1b[1m", "").replace("\x1b[0m", "") for line in terminal.lines]
        assert [line.rstrip() for line in lines] == [*seen, ""]


@pytest.mark.usefixtures("_shown_at_once")
def test_line_is_as_narrow_as_the_terminal_and_obeys_no_text_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    with _on_a_terminal() as terminal:
        with passing_line(lambda: "\x1b[2J" + "x" * 100):
            until(lambda: terminal.lines != [""])
            with printing():
                assert terminal.lines == [""]

        shown = {each for each in terminal.getvalue().split("\r\x1b[K") if each}
    assert shown == {r"\x1b[2J" + "x" * 12}


class _Sweeping:
    """An endpoint, its store and its session, while a sweep runs. They fail with `error`."""

    def __init__(self, error: StoreError | None = None) -> None:
        self.context = self.store = self.sweeps = self
        self.error = error

    @contextmanager
    def open_driver(self) -> Iterator[Any]:
        yield self
        if self.error is not None:
            raise self.error

    def progress(self, sweep_id: str) -> tuple[int, int]:
        assert sweep_id == "5"
        if self.error is not None:
            raise self.error
        return 3, 1_200


@pytest.mark.usefixtures("_shown_at_once")
def test_running_sweep_shows_what_it_has_done() -> None:
    endpoint: Any = _Sweeping()
    with (
        _on_a_terminal() as terminal,
        sweeping_line(endpoint, SimpleNamespace(sweep_id="5"), 2_000),
    ):
        until(
            lambda: terminal.lines[-1].startswith("sweeping: 1,200 of 2,000 messages, 3 batches, ")
        )

    assert terminal.lines == [""]


@pytest.mark.usefixtures("_shown_at_once")
def test_line_of_a_sweep_ends_no_sweep_whose_store_fails() -> None:
    endpoint: Any = _Sweeping(StoreError("The server is gone", transient=True))
    asked = []
    endpoint.progress = lambda _: (asked.append(1), _Sweeping.progress(endpoint, "5"))
    with (
        _on_a_terminal() as terminal,
        sweeping_line(endpoint, SimpleNamespace(sweep_id="5"), 2_000),
    ):
        until(lambda: len(asked) > 1)

    assert terminal.lines == [""]
