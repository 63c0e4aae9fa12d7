"""Ctrl-C in any command: 130, and one sentence that is true of that command."""

import os
import signal
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from duesweep.cli.app import app, main
from duesweep.cli.endings import SENTENCES, ending


def _paths(group: Any, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The command lines of all commands of a group."""
    found: list[tuple[str, ...]] = []
    for name, command in group.commands.items():
        path = (*above, name)
        found += _paths(command, path) if hasattr(command, "commands") else [path]
    return found


ALL = _paths(typer.main.get_command(app))
# What a command does not do without.
NEEDS: dict[tuple[str, ...], list[str]] = {
    ("cancel",): ["--all", "--reason", "x"],
    ("errors", "show"): ["1"],
    ("pause",): ["Billing", "--reason", "x"],
    ("queue", "purge"): ["Billing", "--yes"],
    ("reschedule",): ["--all", "--by", "1h", "--reason", "x"],
    ("restore",): ["1"],
    ("resume",): ["Billing"],
    ("show",): ["1"],
    ("subscriptions", "add"): ["Topic", "Billing", "--endpoint", "Billing"],
    ("subscriptions", "list"): ["Topic"],
    ("subscriptions", "remove"): ["Topic", "--endpoint", "Billing"],
    **{("queue", name): ["Billing"] for name in ("create", "send", "receive", "peek")},
    ("queue", "purge-expired"): ["Billing"],
    ("rabbitmq", "endpoint", "create"): ["Billing"],
    ("rabbitmq", "send"): ["Billing"],
}
# The demonstration has no configuration. A watcher stops at the first signal, with 0.
OTHERS = {("demo",), ("watch",)}


def test_each_command_has_its_sentence() -> None:
    assert {path for path in ALL if path not in SENTENCES} == set()


@pytest.mark.parametrize("path", [path for path in ALL if path not in OTHERS], ids=" ".join)
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
    assert capsys.readouterr() == ("", f"duesweep: interrupted; {SENTENCES[path]}\n")


def test_arguments_after_the_command_do_not_change_the_sentence() -> None:
    assert ending(["queue", "purge", "list", "--yes"]) == SENTENCES["queue", "purge"]


def test_no_promise_is_made_without_a_known_command() -> None:
    assert ending(["--version"]) == "it may be done in part"
