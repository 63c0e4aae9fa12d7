"""What the commands of queues print and refuse, without a server."""

from pathlib import Path

import pytest

from duesweep.cli.app import main
from duesweep.cli.queue_commands import print_count

SETTINGS = ["store.dsn=postgresql://db.example/d", "store.endpoint=Sales", "ledger.root=/ledger"]


@pytest.mark.parametrize(
    ("name", "count", "line"),
    [
        ("messages", 0, "R: 0 messages"),
        ("messages", 1, "R: 1 message"),
        ("messages", 2, "R: 2 messages"),
        ("purged", 1, "R: 1 purged"),
    ],
)
def test_count_is_a_phrase(
    name: str, count: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_count(name, count, destination="R", as_json=False)

    assert capsys.readouterr().out == f"{line}\n"


def test_count_as_json_is_under_one_name(capsys: pytest.CaptureFixture[str]) -> None:
    print_count("messages", 1, destination="R", as_json=True)

    assert capsys.readouterr().out == '{"queue": "R", "messages": 1}\n'


def test_connection_that_there_is_not_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [part for setting in SETTINGS for part in ("--set", setting)]

    assert main(["queue", "peek", "Billing", "--connection", "nope", *given]) == 2

    assert capsys.readouterr().err == (
        "duesweep: Unknown connection nope; name one of default with --connection\n"
    )
