"""Commands that may take long name their steps."""

import json

import pytest

from duesweep.core import passing
from support.commands import run
from support.endpoint import Endpoint

_LONG = {
    "list": "looked at: 1",
    "audit": "looks for stored messages in the ledger; looked at: 0",
    "maintain": "tombstones: writes small files together",
    "plan": "looks at due messages",
    "doctor": "checks store.dsn",
    "report": "checks store.dsn",
}


@pytest.mark.parametrize("command", _LONG)
def test_long_command_logs_its_steps_and_shows_them_on_a_terminal_in_passing(
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    endpoint.set_up("Billing").delay_many(2)
    assert endpoint.run("sweep").code == 0
    endpoint.delay()
    words = [command, "--config", str(endpoint.config_file()), "--json"]
    words += ["--no-spark"] if command == "doctor" else []

    quietly = run(*words)
    # `doctor --verbose` has a meaning of its own.
    told = run(*words, "--log-level", "debug")
    monkeypatch.setattr(passing, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(passing, "EACH_SECONDS", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    from duesweep.cli.app import main  # noqa: PLC0415

    assert quietly.err == ""
    assert json.loads(quietly.out).keys() == json.loads(told.out).keys()
    steps = [json.loads(line) for line in told.err.splitlines()]
    assert _LONG[command] in [each["event"] for each in steps]
    assert {each["level"] for each in steps} == {"debug"}
    shown = ""
    # A thread shows the line, which may come too late for a quick command.
    for _ in range(20):
        main(words)
        shown = capsys.readouterr().err
        if any(each["event"] in shown for each in steps):
            break
    assert any(each["event"] in shown for each in steps)
    assert shown.endswith("\r\x1b[K")
