"""One clear sentence, the right exit code, and nothing written."""

from pathlib import Path

import psycopg
import pytest
from endpoint import Endpoint
from psycopg.conninfo import make_conninfo

from duesweep.cli.app import main


def run(*arguments: str) -> int:
    return int(main(list(arguments)))


def assert_refused(
    capsys: pytest.CaptureFixture[str],
    endpoint: Endpoint,
    code: int,
    expected: str,
    *arguments: str,
) -> None:
    before = endpoint.fetch("SELECT relname FROM pg_class ORDER BY 1")

    assert run("sweep", *arguments) == code

    output = capsys.readouterr()
    assert output.out == ""
    (sentence,) = output.err.strip().splitlines()
    assert expected in sentence
    assert not (endpoint.folder / "ledger").exists()
    assert endpoint.fetch("SELECT relname FROM pg_class ORDER BY 1") == before


def test_unknown_setting_is_named_with_the_nearest(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint
) -> None:
    file = str(endpoint.config_file(retry__max_atempts=3))

    assert_refused(capsys, endpoint, 2, "did you mean retry.max_attempts?", "--config", file)


def test_file_that_is_not_toml(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint, tmp_path: Path
) -> None:
    file = tmp_path / "broken.toml"
    file.write_text("[store\n")

    assert_refused(capsys, endpoint, 2, "is not TOML", "--config", str(file))


def test_file_that_is_not_there(capsys: pytest.CaptureFixture[str], endpoint: Endpoint) -> None:
    assert_refused(capsys, endpoint, 2, "no configuration file", "--config", "absent.toml")


def test_option_that_is_not_known(capsys: pytest.CaptureFixture[str], endpoint: Endpoint) -> None:
    assert_refused(capsys, endpoint, 2, "--fast", "--fast")


def test_server_that_does_not_answer(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint
) -> None:
    file = str(endpoint.config_file(store__dsn="postgresql://postgres@127.0.0.1:1/postgres"))

    assert_refused(capsys, endpoint, 4, "127.0.0.1:1/postgres", "--config", file)


def test_database_that_does_not_exist(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint
) -> None:
    file = str(endpoint.config_file(store__dsn=make_conninfo(endpoint.dsn, dbname="absent")))

    assert_refused(capsys, endpoint, 2, '"absent" does not exist', "--config", file)


def test_missing_delayed_table(capsys: pytest.CaptureFixture[str], endpoint: Endpoint) -> None:
    expected = 'no delayed table "public"."Sales.Orders.Delayed"'

    assert_refused(capsys, endpoint, 2, expected, "--config", str(endpoint.config_file()))


def test_missing_journal(capsys: pytest.CaptureFixture[str], endpoint: Endpoint) -> None:
    endpoint.set_up()
    endpoint.execute("DROP TABLE duesweep_journal")

    assert_refused(
        capsys, endpoint, 2, "run `duesweep setup`", "--config", str(endpoint.config_file())
    )


@pytest.mark.parametrize("right", ["SELECT", "UPDATE", "DELETE"])
def test_missing_right(right: str, capsys: pytest.CaptureFixture[str], endpoint: Endpoint) -> None:
    endpoint.set_up()
    rights = ", ".join({"SELECT", "UPDATE", "DELETE"} - {right})
    dsn = endpoint.role("sweeper", f"{rights} ON {endpoint.delayed}")
    file = str(endpoint.config_file(store__dsn=dsn))

    assert_refused(capsys, endpoint, 2, f"lacks {right} on", "--config", file)


def test_error_queue_that_does_not_exist(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint
) -> None:
    endpoint.set_up()
    file = str(endpoint.config_file(retry__error_queue="error"))

    assert_refused(capsys, endpoint, 2, "retry.error_queue is 'error'", "--config", file)


def test_nothing_due_is_0_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint
) -> None:
    endpoint.set_up()
    endpoint.delay(due_in_seconds=3_600)

    assert run("sweep", "--json", "--config", str(endpoint.config_file())) == 0

    assert '"outcome": "idle"' in capsys.readouterr().out
    assert not (endpoint.folder / "ledger").exists()


def test_setup_creates_what_the_transport_would(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint
) -> None:
    file = str(endpoint.config_file(retry__error_queue="error"))

    assert run("setup", "--config", file) == 0
    assert 'created "public"."Sales.Orders.Delayed"' in capsys.readouterr().out
    assert run("setup", "--config", file) == 0
    assert "Everything is there already" in capsys.readouterr().out

    columns = endpoint.fetch(
        "SELECT table_name, column_name, data_type FROM information_schema.columns"
        " WHERE table_name IN ('Sales.Orders', 'Sales.Orders.Delayed', 'error')"
    )
    assert len(columns) == 5 + 4 + 5
    indexes = endpoint.fetch(
        "SELECT indexname FROM pg_indexes WHERE tablename = 'Sales.Orders.Delayed'"
    )
    assert {row.indexname for row in indexes} == {
        "Sales.Orders.Delayed_pkey",
        "Sales.Orders.Delayed_Due",
    }


def test_printed_setup_is_what_a_dba_can_run(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint
) -> None:
    file = str(endpoint.config_file(retry__error_queue="error"))
    assert run("setup", "--print-sql", "--config", file) == 0
    script = capsys.readouterr().out
    assert endpoint.fetch("SELECT FROM pg_class WHERE relname = 'error'") == []

    with psycopg.connect(endpoint.dsn) as dba:
        dba.execute(script.encode())

    assert run("sweep", "--config", file) == 0
