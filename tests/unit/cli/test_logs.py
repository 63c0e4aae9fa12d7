"""The log and the options that all commands have: `--quiet`, `--verbose` and `--log-level`."""

import json
import logging
from collections.abc import Iterator
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import pytest
import structlog

from duesweep.core import logs
from duesweep.core.logs import Level
from support.commands import run


class _Terminal(StringIO):
    def isatty(self) -> bool:
        return True


class _Closed(StringIO):
    """A terminal that was closed."""

    is_tried = False

    def write(self, _: str) -> int:
        self.is_tried = True
        raise OSError(5, "Input/output error")


@pytest.fixture(autouse=True)
def _usual_level() -> Iterator[None]:
    structlog.reset_defaults()
    yield
    logs.use(Level.INFO)


@pytest.fixture
def settings(tmp_path: Path) -> str:
    """A file that `config` prints."""
    file = tmp_path / "duesweep.toml"
    file.write_text(
        '[store]\ndsn = "postgresql://sweeper@localhost/nsb"\nendpoint = "Sales"\n'
        f'[ledger]\nroot = "{tmp_path}"\n'
    )
    return str(file)


def _log_all() -> list[str]:
    logs.step("reads")
    logs.info("swept", dispatched=3)
    logging.getLogger("duesweep.sweep.batch").info("Slice 1: the careful form")
    logs.warning("waiting\x1b[2J", reason="\x1b[2Jthe store\x07")
    logging.getLogger("duesweep.sweep.slice").warning("Slice 1 stops")
    try:
        raise ValueError("no queue")
    except ValueError:
        logs.exception("failed")
    return [
        "reads",
        "swept",
        "Slice 1: the careful form",
        "waiting\x1b[2J",
        "Slice 1 stops",
        "failed",
    ]


@pytest.mark.parametrize(
    ("level", "left_out"),
    [
        (Level.DEBUG, []),
        (Level.INFO, ["reads", "Slice 1: the careful form"]),
        (Level.WARNING, ["reads", "swept", "Slice 1: the careful form"]),
        (
            Level.ERROR,
            ["reads", "swept", "Slice 1: the careful form", "waiting\x1b[2J", "Slice 1 stops"],
        ),
    ],
)
def test_pipe_gets_lines_of_json_of_the_level_and_worse_ones(
    level: Level, left_out: list[str]
) -> None:
    with redirect_stderr(StringIO()) as err:
        logs.use(level)
        events = _log_all()

    lines = [json.loads(line) for line in err.getvalue().splitlines()]
    assert [line["event"] for line in lines] == [each for each in events if each not in left_out]
    assert all(line["timestamp"].endswith("Z") for line in lines)
    assert 'raise ValueError("no queue")' in lines[-1]["exception"]


def test_terminal_gets_text_that_it_does_not_obey() -> None:
    with redirect_stderr(_Terminal()) as err:
        logs.use(Level.INFO)
        _log_all()

    text = err.getvalue()
    assert "swept" in text
    assert "dispatched=3" in text
    assert r"reason='\x1b[2Jthe store\x07'" in text
    assert "ValueError: no queue" in text
    assert not {"\x1b", "\x07", "{"} & {*text}


def test_level_of_a_later_command_holds_and_a_program_keeps_its_own_log() -> None:
    with redirect_stderr(StringIO()) as err:
        logs.use(Level.ERROR)
        logs.warning("first")
        logs.use(Level.INFO)
        logs.warning("second")
    assert [json.loads(line)["event"] for line in err.getvalue().splitlines()] == ["second"]

    own = structlog.testing.LogCapture()
    structlog.configure(processors=[own])
    logs.use(Level.DEBUG)
    logs.info("third")
    assert [line["event"] for line in own.entries] == ["third"]


@pytest.mark.parametrize("place", [0, 1, 3])
def test_quiet_command_prints_only_if_its_exit_code_is_not_0(settings: str, place: int) -> None:
    words = ["config", "--config", settings]
    words.insert(place, "--quiet")

    ran = run(*words)
    assert (ran.code, ran.told) == (0, "")

    failed = run(*words, "--set", "store.nonsense=1")
    assert failed.code == 2
    assert "There is no setting store.nonsense" in failed.err


def test_option_of_all_commands_may_stand_anywhere_but_after_two_dashes(settings: str) -> None:
    for words in (
        ["--log-level", "error", "config"],
        ["config", "--log-level=error"],
        ["config", "--verbose", "--log-level", "error"],
    ):
        assert run(*words, "--config", settings).code == 0
        assert logging.getLogger("duesweep").level == logging.ERROR
    assert run("config", "--verbose", "--config", settings).code == 0
    assert logging.getLogger("duesweep").level == logging.DEBUG

    assert run("config", "--config", settings, "--", "--quiet").code == 2
    assert "is not one of 'debug', 'info'" in run("config", "--log-level", "loud").err


def test_log_to_a_terminal_that_was_closed_ends_nothing() -> None:
    closed = _Closed()
    with redirect_stderr(closed):
        logs.info("swept")

    assert closed.is_tried
