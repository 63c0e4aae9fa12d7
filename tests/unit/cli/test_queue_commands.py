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


ODBC = "Server=db.example,1433;Database=nsb;Uid=u;Pwd=s3cret"


def _printed(capsys: pytest.CaptureFixture[str], kind: str, *arguments: str) -> str:
    dsn = ODBC if kind == "sqlserver" else "postgresql://db.example/d"
    given = [part for setting in SETTINGS[1:] for part in ("--set", setting)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUESWEEP_STORE__DSN", dsn)
        given += ["--set", f"store.kind={kind}"]
        assert main([*arguments, "--print-sql", *given]) == 0
    return capsys.readouterr().out


def test_statements_for_a_queue_are_printed_without_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    plain = _printed(capsys, "postgresql", "queue", "create", "Billing")
    readable = _printed(capsys, "postgresql", "queue", "create", "Billing", "--readable-body")

    assert 'CREATE TABLE IF NOT EXISTS "public"."Billing"' in plain
    assert "bodystring" not in plain
    assert 'ALTER TABLE "public"."Billing" ADD COLUMN IF NOT EXISTS bodystring' in readable


def test_statements_for_a_queue_on_sql_server_are_batches_in_its_own_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    first, created, readable = _printed(
        capsys, "sqlserver", "queue", "create", "Billing@[s]@[other]", "--readable-body"
    ).split("GO\n")

    assert "USE [other];" in first
    assert "CREATE TABLE [other].[s].[Billing]" in created
    assert "ADD BodyString AS" in readable


@pytest.mark.parametrize(
    ("kind", "table"),
    [("postgresql", '"public"."Topics"'), ("sqlserver", "[nsb].[dbo].[Topics]")],
)
def test_statements_for_subscriptions_are_printed_without_a_server(
    kind: str,
    table: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    text = _printed(capsys, kind, "subscriptions", "create", "--table", "Topics")

    assert f"{table} (" in text
    assert "s3cret" not in text


def test_address_that_names_no_table_is_refused_before_anything_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [part for setting in SETTINGS for part in ("--set", setting)]

    assert main(["queue", "create", "public.", "--print-sql", *given]) == 2

    assert capsys.readouterr().out == ""
