"""Ctrl-C in any command: 130, and one sentence that is true of that command."""

import os
import signal
from typing import Any

import pytest
import typer

from duesweep.cli import app
from duesweep.cli.endings import SENTENCES, ending


def _paths(group: Any, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The command lines of all commands of a group."""
    found: list[tuple[str, ...]] = []
    for name, command in group.commands.items():
        path = (*above, name)
        found += _paths(command, path) if hasattr(command, "commands") else [path]
    return found


ALL = _paths(typer.main.get_command(app.app))


def test_each_command_has_its_sentence() -> None:
    assert {path for path in ALL if path not in SENTENCES} == set()


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_ctrl_c_ends_a_command_with_130_and_its_sentence(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(app, "_run", lambda _: os.kill(os.getpid(), signal.SIGINT))
    try:
        code = app.main([*path, "--config", "sales.toml"])
    finally:
        signal.signal(signal.SIGINT, before)

    assert code == 130
    assert capsys.readouterr() == ("", f"duesweep: interrupted; {SENTENCES[path]}\n")


def test_arguments_after_the_command_do_not_change_the_sentence() -> None:
    assert ending(["queue", "purge", "list", "--yes"]) == SENTENCES["queue", "purge"]


def test_no_promise_is_made_without_a_known_command() -> None:
    assert ending(["--version"]) == "it may be done in part"
