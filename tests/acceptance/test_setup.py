"""The command `setup`: what it creates and where, and what it says when it may not."""

import re
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from duesweep.cli.app import main
from duesweep.stores.dialect import JOURNAL_TABLES
from support.endpoint import Endpoint

OWN_TABLES = {f"duesweep_{name}" for name in JOURNAL_TABLES}
STORE_TABLES = {"Sales.Orders.Delayed", "SubscriptionRouting"} | OWN_TABLES
TABLES = (
    "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
)


def run(*arguments: str) -> int:
    return int(main(list(arguments)))


@pytest.fixture
def queues_dsn(endpoint: Endpoint) -> Iterator[str]:
    """An empty database for the queues."""
    name = f"{endpoint.server.admin.info.dbname}_queues"
    endpoint.execute(f"CREATE DATABASE {name}")
    yield make_conninfo(endpoint.dsn, dbname=name)
    endpoint.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _tables(dsn: str) -> set[str]:
    with psycopg.connect(dsn) as connection:
        return {name for (name,) in connection.execute(TABLES.encode())}


def test_setup_creates_what_the_transport_would(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint
) -> None:
    file = str(endpoint.config_file(retry__error_queue="error"))

    assert run("setup", "--config", file) == 0
    created = capsys.readouterr().out
    assert 'created "public"."Sales.Orders.Delayed"' in created
    assert 'created "public"."SubscriptionRouting"' in created
    assert run("setup", "--config", file) == 0
    assert "Everything exists already" in capsys.readouterr().out

    columns = endpoint.fetch(
        "SELECT table_name, column_name, data_type FROM information_schema.columns"
        " WHERE table_name IN ('Sales.Orders', 'Sales.Orders.Delayed', 'error',"
        " 'SubscriptionRouting')"
    )
    assert len(columns) == 5 + 4 + 5 + 3
    indexes = endpoint.fetch(
        "SELECT indexname FROM pg_indexes WHERE tablename = 'Sales.Orders.Delayed'"
    )
    assert {row.indexname for row in indexes} == {
        "Sales.Orders.Delayed_pkey",
        "Sales.Orders.Delayed_Due",
    }


def test_printed_setup_is_what_a_dba_can_run_quietly_and_again(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint
) -> None:
    file = str(
        endpoint.config_file(retry__error_queue="error", queues__default__readable_body=True)
    )
    assert run("setup", "--print-sql", "--config", file) == 0
    script = capsys.readouterr().out.encode()
    assert _tables(endpoint.dsn) == set()
    notices: list[str | None] = []

    with psycopg.connect(endpoint.dsn) as dba:
        dba.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        answer = dba.execute(script + script)
        tables = [answer.description]
        while answer.nextset():
            tables.append(answer.description)

    assert notices == []
    assert len(tables) > 20
    assert set(tables) == {None}
    assert run("sweep", "--config", file) == 0


def test_grants_without_print_sql_are_refused(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint
) -> None:
    assert run("setup", "--grant-to", "sweeper", "--config", str(endpoint.config_file())) == 2

    assert "give --print-sql too" in capsys.readouterr().err
    assert _tables(endpoint.dsn) == set()


def test_queues_are_created_in_their_own_database(endpoint: Endpoint, queues_dsn: str) -> None:
    settings = {"queues__default__dsn": queues_dsn, "retry__error_queue": "error"}
    file = str(endpoint.config_file(**settings))

    assert run("setup", "--config", file) == 0

    assert _tables(queues_dsn) == {"Sales.Orders", "error"}
    assert _tables(endpoint.dsn) == STORE_TABLES
    assert run("sweep", "--config", file) == 0


def test_printed_setup_says_which_part_is_for_which_database(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint, queues_dsn: str
) -> None:
    file = str(endpoint.config_file(queues__default__dsn=queues_dsn))
    assert run("setup", "--print-sql", "--config", file) == 0
    first, of_store, of_queues = re.split(
        "^-- In the database that .* names:$", capsys.readouterr().out, flags=re.MULTILINE
    )

    for dsn, script in ((endpoint.dsn, of_store), (queues_dsn, of_queues)):
        with psycopg.connect(dsn) as dba:
            dba.execute(script.encode())

    assert first == ""
    assert _tables(queues_dsn) == {"Sales.Orders"}
    assert run("sweep", "--config", file) == 0


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"store__schema": "absent"}, 'There is no schema "absent"'),
        ({"retry__error_queue": "absent.error"}, 'There is no schema "absent"'),
        ({"retry__error_queue": "public."}, "names no table"),
    ],
)
def test_setup_that_cannot_create_is_a_wrong_setting_and_creates_nothing(
    capsys: pytest.CaptureFixture[str],
    endpoint: Endpoint,
    overrides: dict[str, str],
    expected: str,
) -> None:
    assert run("setup", "--config", str(endpoint.config_file(**overrides))) == 2

    assert expected in capsys.readouterr().err
    assert _tables(endpoint.dsn) == set()


@pytest.mark.parametrize("command", [["setup"], ["setup", "--print-sql"], ["sweep"]])
def test_error_queue_that_no_route_takes_is_refused_by_setup_as_by_a_sweep(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint, command: list[str]
) -> None:
    if command == ["sweep"]:
        endpoint.set_up()
    before = _tables(endpoint.dsn)
    file = endpoint.config_file(queues__here__schema="public", retry__error_queue="error")
    route = '[[route]]\ndestination = "Sales.*"\nconnection = "here"\n'
    file.write_text(file.read_text(encoding="utf-8") + route, encoding="utf-8")

    assert run(*command, "--config", str(file)) == 2

    assert capsys.readouterr().err == (
        "duesweep: retry.error_queue: No [[route]] takes the destination 'error'; "
        "add a [[route]] for it\n"
    )
    assert _tables(endpoint.dsn) == before


def test_setup_without_the_right_to_create_says_what_to_grant(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint
) -> None:
    endpoint.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    file = str(
        endpoint.config_file(store__dsn=endpoint.server.role("sweeper", "USAGE ON SCHEMA public"))
    )

    assert run("setup", "--config", file) == 2

    assert 'tables in schema "public"; grant it USAGE and CREATE' in capsys.readouterr().err
    assert _tables(endpoint.dsn) == set()


@pytest.mark.parametrize("setting", ["store__dsn", "queues__default__dsn"])
def test_setup_of_a_read_only_database_is_a_wrong_setting(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint, setting: str
) -> None:
    dsn = make_conninfo(endpoint.dsn, options="-c default_transaction_read_only=on")

    assert run("setup", "--config", str(endpoint.config_file(**{setting: dsn}))) == 2

    assert f"{setting.replace('__', '.')} opens is read-only" in capsys.readouterr().err


def test_setup_completes_tables_of_an_earlier_version_and_keeps_their_rows(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint
) -> None:
    endpoint.set_up()
    journal, sweeps = endpoint.own_table("journal"), endpoint.own_table("sweeps")
    for column in ("given", "claimed", "skipped", "gone", "later", '"left"'):
        endpoint.execute(f"ALTER TABLE {journal} DROP COLUMN {column}")
    for column in ("reason", "stop_at"):
        endpoint.execute(f"ALTER TABLE {sweeps} DROP COLUMN {column}")
    endpoint.execute(f"ALTER TABLE {sweeps} RENAME COLUMN over_limit TO held_back")
    endpoint.execute(
        f"INSERT INTO {journal} (sweep_id, slice, kind) VALUES (gen_random_uuid(), 0, 'slice')"
    )
    file = str(endpoint.config_file())

    assert run("sweep", "--config", file) == 2
    assert "run the command `setup`" in capsys.readouterr().err
    assert run("setup", "--config", file) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"added the columns that {journal} lacked",
        f"added the columns that {sweeps} lacked",
    ]

    assert [row.given for row in endpoint.fetch(f"SELECT given FROM {journal}")] == [None]
    endpoint.execute(f"DELETE FROM {journal}")
    assert run("sweep", "--config", file) == 0


def test_queues_with_readable_bodies_take_what_a_sweep_delivers(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint
) -> None:
    file = str(endpoint.config_file(queues__default__readable_body=True))
    assert run("setup", "--config", file) == 0
    endpoint.delay(None, body=b"read \xe9 me")
    capsys.readouterr()

    assert run("sweep", "--config", file) == 0

    (row,) = endpoint.fetch('SELECT bodystring FROM "Sales.Orders"')
    assert row.bodystring == r"read \351 me"
    assert run("setup", "--config", file) == 0
    assert "Everything exists already" in capsys.readouterr().out


def test_setup_gives_a_queue_that_is_there_the_readable_bodies_that_it_lacks(
    capsys: pytest.CaptureFixture[str], endpoint: Endpoint
) -> None:
    endpoint.set_up()
    file = str(endpoint.config_file(queues__default__readable_body=True))

    assert run("setup", "--config", file) == 0

    assert capsys.readouterr().out == ('added the columns that "public"."Sales.Orders" lacked\n')
    assert endpoint.fetch('SELECT bodystring FROM "Sales.Orders"') == []
