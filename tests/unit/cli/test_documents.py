"""Commands that an error ends print one document, too, if they are asked for one."""

import json
from pathlib import Path

import pytest

from duesweep.cli.app import main

_MISSING = ("--json", "--config", "missing.toml")


@pytest.mark.parametrize(
    "command",
    [
        ("plan",),
        ("list",),
        ("show", "key"),
        ("cancel", "key"),
        ("reschedule", "key", "--by", "+1h"),
        ("restore", "key"),
        ("errors", "list"),
        ("errors", "replay", "id"),
        ("pause", "Billing", "--reason", "why"),
        ("resume", "Billing"),
        ("paused",),
        ("doctor",),
        ("setup",),
        ("errors", "show", "id"),
        ("queue", "send", "Billing"),
        ("rabbitmq", "delays", "create"),
        ("subscriptions", "create"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_command_that_an_error_ends_prints_one_document(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main([*command, *_MISSING]) == 2

    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["exit_code"] == 2
    assert document["error"] in err
    assert "missing.toml" in err


def test_command_of_many_results_prints_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(["queue", "receive", "Billing", *_MISSING]) == 2

    assert capsys.readouterr().out == ""
