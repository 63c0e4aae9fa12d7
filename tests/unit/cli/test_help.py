"""What every command of the application has in common: its help, and its end by Ctrl-C."""

import os
import re
import signal
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from duesweep import Duesweep
from duesweep.cli.app import all_commands, ending, main

# Their output has a form of its own.
WITHOUT_JSON = {
    *(("demo",), ("config",), ("watch",)),
}


def _walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, each in inner.items():
        yield from _walk(each, (*path, name))


COMMANDS = dict(_walk(typer.main.get_command(all_commands())))


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


# They do not concern one endpoint, or never end.
WITHOUT_METHOD = {"config", "demo", "queue", "rabbitmq", "subscriptions", "watch"}
# Commands whose method has another name.
METHODS = {
    **{("errors", "list"): "error_groups", ("errors", "show"): "show_errors"},
    **{("errors", name): name for name in ("replay", "discard")},
    ("report",): "status",
}


def test_command_on_an_endpoint_is_a_method_of_duesweep() -> None:
    names = {METHODS.get(path, path[0]) for path in COMMANDS if path[0] not in WITHOUT_METHOD}

    assert len(names) > 15
    assert {name for name in names if not callable(getattr(Duesweep, name, None))} == set()
    named = [name for name in vars(Duesweep) if not name.startswith("_")]
    assert [name for name in named if not getattr(Duesweep, name).__doc__] == []


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


# The required arguments of commands.
NEEDS: dict[tuple[str, ...], list[str]] = {
    ("cancel",): ["--all", "--reason", "x"],
    ("errors", "discard"): ["--all"],
    ("errors", "replay"): ["--all"],
    ("errors", "show"): ["1"],
    ("pause",): ["Billing", "--reason", "x"],
    ("queue", "purge"): ["Billing", "--yes"],
    ("reschedule",): ["--all", "--by", "1h", "--reason", "x"],
    ("restore",): ["1"],
    ("resume",): ["Billing"],
    ("show",): ["1"],
    ("subscriptions", "add"): ["Topic", "Billing", "--subscriber", "Billing"],
    ("subscriptions", "list"): ["Topic"],
    ("subscriptions", "remove"): ["Topic", "--subscriber", "Billing"],
    **{("queue", name): ["Billing"] for name in ("create", "send", "receive", "peek")},
    ("queue", "purge-expired"): ["Billing"],
    ("rabbitmq", "endpoint", "create"): ["Billing"],
    ("rabbitmq", "send"): ["Billing"],
}
# The demonstration has no configuration. A watcher stops at the first signal, with 0.
OTHERS = {("demo",), ("watch",)}


def test_each_command_has_its_sentence() -> None:
    assert [path for path in COMMANDS if ending(path) == ending([])] == []


@pytest.mark.parametrize("path", [path for path in COMMANDS if path not in OTHERS], ids=" ".join)
def test_ctrl_c_ends_a_command_with_130_and_its_sentence(
    path: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "duesweep.toml"
    file.touch()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    # Each command reads its configuration.
    monkeypatch.setattr(tomllib, "loads", lambda _: os.kill(os.getpid(), signal.SIGINT))
    try:
        code = main([*path, *NEEDS.get(path, []), "--config", str(file)])
    finally:
        signal.signal(signal.SIGINT, before)

    assert code == 130
    assert capsys.readouterr() == ("", f"duesweep: interrupted; {ending(path)}\n")


def test_arguments_after_the_command_do_not_change_the_sentence() -> None:
    assert ending(["queue", "purge", "list", "--yes"]) == ending(["queue", "purge"])


def test_no_promise_is_made_without_a_known_command() -> None:
    assert ending(["--version"]) == "it may be done in part"
