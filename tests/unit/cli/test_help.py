"""What every command of the application has in common."""

import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from duesweep.cli.app import app, main

# They print no results, or one JSON document in any case.
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
every_command = pytest.mark.parametrize("path", COMMANDS, ids=" ".join)


@every_command
def test_help_has_an_example_of_just_this_command(path: tuple[str, ...]) -> None:
    found = re.search(r"^\s*Example: duesweep (.+)$", COMMANDS[path].help, re.MULTILINE)

    assert found
    assert found[1].split()[: len(path)] == list(path)


@every_command
def test_options_and_arguments_say_what_they_are(path: tuple[str, ...]) -> None:
    silent = [one.name for one in COMMANDS[path].params if not (one.help or one.hidden)]

    assert silent == []


@every_command
def test_results_can_be_had_as_json(path: tuple[str, ...]) -> None:
    options = {name for one in COMMANDS[path].params for name in one.opts}

    assert ("--json" in options) == (path not in WITHOUT_JSON)


@every_command
def test_help_is_printed_without_colours(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*path, "--help"]) == 0

    out = capsys.readouterr().out
    assert "Usage: duesweep" in out
    assert "\x1b" not in out


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
