"""What every command of the application has in common."""

import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from duesweep.cli.app import app, main

# What they print has a form of its own.
WITHOUT_JSON = {
    *(("demo",), ("config",), ("watch",), ("report",)),
    *(("schedule", form) for form in ("cron", "systemd", "kubernetes", "airflow")),
}


def _walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, each in inner.items():
        yield from _walk(each, (*path, name))


COMMANDS = dict(_walk(typer.main.get_command(app)))


def test_help_has_an_example_of_just_its_command() -> None:
    assert len(COMMANDS) > 30
    for path, command in COMMANDS.items():
        assert re.search(
            rf"^\s*Example: duesweep {' '.join(path)}\b", command.help, re.MULTILINE
        ), path


def test_options_and_arguments_say_what_they_are() -> None:
    silent = [
        (*path, one.name)
        for path, command in COMMANDS.items()
        for one in command.params
        if not (one.help or one.hidden)
    ]

    assert silent == []


def test_results_can_be_had_as_json() -> None:
    without = {
        path
        for path, command in COMMANDS.items()
        if "--json" not in {name for one in command.params for name in one.opts}
    }

    assert without == WITHOUT_JSON


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(
    shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_DUESWEEP_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("COMP_WORDS", "duesweep canc")
    monkeypatch.setenv("COMP_CWORD", "1")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "duesweep canc")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    monkeypatch.setattr(sys, "argv", ["duesweep"])

    with pytest.raises(SystemExit):
        main([])

    assert "cancel" in capsys.readouterr().out
