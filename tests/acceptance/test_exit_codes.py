"""One clear sentence, the right exit code, and nothing written."""

import json
import re
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from duesweep.demo.server import EmbeddedServer
from duesweep.stores.journal import SweepReport
from support.endpoint import Endpoint
from support.refusals import assert_refused, run


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

    assert_refused(capsys, endpoint, 2, "is not valid TOML", "--config", str(file))


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


def test_role_that_does_not_exist(capsys: pytest.CaptureFixture[str], endpoint: Endpoint) -> None:
    file = str(endpoint.config_file(store__dsn=make_conninfo(endpoint.dsn, user="absent")))

    assert_refused(capsys, endpoint, 2, 'role "absent" does not exist', "--config", file)


def test_missing_delayed_table(capsys: pytest.CaptureFixture[str], endpoint: Endpoint) -> None:
    expected = 'no delayed table "public"."Sales.Orders.Delayed"'

    assert_refused(capsys, endpoint, 2, expected, "--config", str(endpoint.config_file()))


def test_missing_journal(capsys: pytest.CaptureFixture[str], endpoint: Endpoint) -> None:
    endpoint.set_up()
    endpoint.execute("DROP TABLE duesweep_journal")

    assert_refused(
        capsys, endpoint, 2, "run the command `setup` once", "--config", str(endpoint.config_file())
    )


@pytest.mark.parametrize("right", ["SELECT", "UPDATE", "DELETE"])
def test_missing_right(right: str, capsys: pytest.CaptureFixture[str], endpoint: Endpoint) -> None:
    endpoint.set_up()
    rights = ", ".join({"SELECT", "UPDATE", "DELETE"} - {right})
    dsn = endpoint.server.role("sweeper", f"{rights} ON {endpoint.delayed}")
    file = str(endpoint.config_file(store__dsn=dsn))

    assert_refused(capsys, endpoint, 2, f"lacks {right} on", "--config", file)


@pytest.mark.parametrize("setting", ["store__dsn", "queues__default__dsn"])
def test_database_that_is_read_only(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint, setting: str
) -> None:
    endpoint.set_up()
    dsn = make_conninfo(endpoint.dsn, options="-c default_transaction_read_only=on")
    file = str(endpoint.config_file(**{setting: dsn}))
    expected = f"{setting.replace('__', '.')} opens is read-only; connect to the primary"

    assert_refused(capsys, endpoint, 2, expected, "--config", file)


def test_delayed_table_of_another_server(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint
) -> None:
    endpoint.set_up()
    endpoint.execute(f"DROP TABLE {endpoint.delayed}")
    endpoint.execute("CREATE FOREIGN DATA WRAPPER nowhere")
    endpoint.execute("CREATE SERVER other FOREIGN DATA WRAPPER nowhere")
    endpoint.execute(
        f"CREATE FOREIGN TABLE {endpoint.delayed} (id uuid, headers text, body bytea,"
        " due timestamptz) SERVER other"
    )

    assert_refused(
        capsys, endpoint, 2, "cannot be the delayed table", "--config", str(endpoint.config_file())
    )


def test_database_whose_text_has_no_encoding(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint
) -> None:
    name = f"{endpoint.server.admin.info.dbname}_ascii"
    endpoint.execute(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    try:
        dsn = make_conninfo(endpoint.dsn, dbname=name)
        file = str(endpoint.config_file(store__dsn=dsn))
        assert_refused(capsys, endpoint, 2, "is encoded in SQL_ASCII", "--config", file)
    finally:
        endpoint.execute(f"DROP DATABASE {name}")


def test_nothing_due_is_0_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint
) -> None:
    endpoint.set_up()
    endpoint.delay(due_in_seconds=3_600)

    assert run("sweep", "--json", "--config", str(endpoint.config_file())) == 0

    summary = json.loads(capsys.readouterr().out)
    names = [field.name for field in fields(SweepReport)]
    assert list(summary) == [*names, "held_back", "next_due", "exit_code", "error"]
    assert summary["source"].endswith("/public.Sales.Orders.Delayed")
    assert (summary["outcome"], summary["found"], summary["over_limit"]) == ("idle", 0, 0)
    assert summary["sweep_id"] is None
    wait = datetime.fromisoformat(summary["next_due"]) - datetime.now(UTC)
    assert timedelta(minutes=50) < wait <= timedelta(hours=1)
    assert not (endpoint.folder / "ledger").exists()
    assert run("sweep", "--config", str(endpoint.config_file())) == 0
    assert re.search("next message is due in (1 h 0|59) min", capsys.readouterr().out)


@pytest.mark.parametrize("store", ["ForgetfulStore", "SlowStore"])
def test_nothing_due_is_0_too_where_the_store_cannot_tell_the_next_message(
    store: str, capsys: pytest.CaptureFixture[str], endpoint: Endpoint
) -> None:
    custom = {
        "store__kind": f"support.acme_stores:{store}",
        "store__options__zone": "UTC",
        "queues__default__kind": "postgresql",
    }
    endpoint.set_up(**custom).delay(due_in_seconds=3_600)

    assert run("sweep", "--json", "--config", str(endpoint.config_file(**custom))) == 0

    told = json.loads(capsys.readouterr().out)
    assert (told["outcome"], told["next_due"]) == ("idle", None)


def test_time_zone_that_nobody_knows(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint
) -> None:
    endpoint.set_up()
    file = str(endpoint.config_file(store__writer_time_zone="Mars/Olympus"))

    assert_refused(capsys, endpoint, 2, "store.writer_time_zone is", "--config", file)


def test_socket_that_jdbc_cannot_use(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint, server: EmbeddedServer
) -> None:
    endpoint.set_up()
    dsn = make_conninfo(endpoint.dsn, host=str(server.sockets))

    assert_refused(
        capsys,
        endpoint,
        2,
        "JDBC cannot use",
        "--config",
        str(endpoint.config_file(store__dsn=dsn)),
    )
