"""Commands that an error ends print one document, too, if they are asked for one."""

from pathlib import Path

import pytest

from support.commands import run

_MISSING = ("--json", "--config", "missing.toml")


@pytest.mark.parametrize(
    "command",
    [
        *(("plan",), ("list",), ("paused",), ("doctor",), ("setup",), ("errors", "list")),
        *(("show", "key"), ("cancel", "key"), ("restore", "key"), ("resume", "Billing")),
        *(("reschedule", "key", "--by", "+1h"), ("pause", "Billing", "--reason", "why")),
        *(("errors", "replay", "id"), ("errors", "show", "id"), ("queue", "send", "Billing")),
        *(("rabbitmq", "delays", "create"), ("subscriptions", "create")),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_command_that_an_error_ends_prints_one_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)

    ran = run(*command, *_MISSING)

    assert (ran.code, ran.document["exit_code"]) == (2, 2)
    assert ran.document["error"] in ran.err
    assert "missing.toml" in ran.err


def test_command_of_many_results_prints_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    ran = run("queue", "receive", "Billing", *_MISSING)

    assert (ran.code, ran.out) == (2, "")
