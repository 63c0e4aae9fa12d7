"""A sweep that cannot start ends with one sentence, the right exit code, and nothing written.

Mistakes in settings, logins and names are in test_mistakes.py, missing rights in test_rights.py.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta

import pytest
from psycopg.conninfo import make_conninfo

from duesweep.cli.app import main
from duesweep.demo.server import EmbeddedServer
from duesweep.stores.journal import SweepReport
from support.endpoint import Endpoint

Capture = pytest.CaptureFixture[str]
NOWHERE = "postgresql://postgres@127.0.0.1:1/postgres"
STORE, QUEUES = "store__dsn", "queues__default__dsn"
# The settings of an endpoint that is set up, and that the preparation may have harmed.
Prepare = Callable[[Endpoint], Mapping[str, object]]


def _harmed(*statements: str) -> Prepare:
    def prepare(endpoint: Endpoint) -> Mapping[str, object]:
        for statement in statements:
            endpoint.execute(statement)
        return {}

    return prepare


def _connecting(setting: str, **parameters: str) -> Prepare:
    return lambda endpoint: {setting: make_conninfo(endpoint.dsn, **parameters)}


def _set(**settings: object) -> Prepare:
    return lambda _: settings


READ_ONLY = {"options": "-c default_transaction_read_only=on"}
DELAYED = '"public"."Sales.Orders.Delayed"'
REFUSED: dict[str, tuple[Prepare, int, str]] = {
    "no delayed table": (_harmed(f"DROP TABLE {DELAYED}"), 2, f"no delayed table {DELAYED}"),
    "no journal": (_harmed("DROP TABLE duesweep_journal"), 2, "run the command `setup` once"),
    "delayed table of another server": (
        _harmed(
            f"DROP TABLE {DELAYED}",
            "CREATE FOREIGN DATA WRAPPER nowhere",
            "CREATE SERVER other FOREIGN DATA WRAPPER nowhere",
            f"CREATE FOREIGN TABLE {DELAYED} (id uuid, headers text, body bytea, due timestamptz)"
            " SERVER other",
        ),
        2,
        "cannot be the delayed table",
    ),
    "read-only store": (
        _connecting(STORE, **READ_ONLY),
        2,
        "store.dsn opens is read-only; connect to the primary",
    ),
    "read-only queues": (
        _connecting(QUEUES, **READ_ONLY),
        2,
        "queues.default.dsn opens is read-only; connect to the primary",
    ),
    "unknown time zone": (
        _set(store__writer_time_zone="Mars/Olympus"),
        2,
        "store.writer_time_zone is",
    ),
    "queues on a server that does not answer": (_set(**{QUEUES: NOWHERE}), 4, "127.0.0.1:1/"),
    "queues in an absent database": (
        _connecting(QUEUES, dbname="absent"),
        2,
        '"absent" does not exist',
    ),
    "queues in a wrong database": (
        _connecting(QUEUES, dbname="postgres"),
        2,
        'no queue table "public"."Sales.Orders"',
    ),
    "dsn of queues that cannot be read": (
        _set(**{QUEUES: "nonsense"}),
        2,
        "queues.default.dsn: ",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_sweep_that_cannot_start_is_refused(what: str, capsys: Capture, endpoint: Endpoint) -> None:
    endpoint.set_up()
    prepare, code, expected = REFUSED[what]

    _assert_refused(capsys, endpoint, prepare(endpoint), code, expected)


def test_socket_that_jdbc_cannot_use_is_refused(
    capsys: Capture, endpoint: Endpoint, server: EmbeddedServer
) -> None:
    endpoint.set_up()
    settings = {STORE: make_conninfo(endpoint.dsn, host=str(server.sockets))}

    _assert_refused(capsys, endpoint, settings, 2, "JDBC cannot use")


def test_database_whose_text_has_no_encoding_is_refused(
    capsys: Capture, endpoint: Endpoint
) -> None:
    name = f"{endpoint.server.admin.info.dbname}_ascii"
    endpoint.execute(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    try:
        settings = {STORE: make_conninfo(endpoint.dsn, dbname=name)}
        _assert_refused(capsys, endpoint, settings, 2, "is encoded in SQL_ASCII")
    finally:
        endpoint.execute(f"DROP DATABASE {name}")


def test_nothing_due_is_0_and_writes_nothing(capsys: Capture, endpoint: Endpoint) -> None:
    endpoint.set_up()
    endpoint.delay(due_in_seconds=3_600)

    assert main(["sweep", "--json", "--config", str(endpoint.config_file())]) == 0

    summary = json.loads(capsys.readouterr().out)
    names = [field.name for field in fields(SweepReport)]
    assert list(summary) == [*names, "held_back", "next_due", "exit_code", "error"]
    assert summary["source"].endswith("/public.Sales.Orders.Delayed")
    assert (summary["outcome"], summary["found"], summary["over_limit"]) == ("idle", 0, 0)
    assert summary["sweep_id"] is None
    wait = datetime.fromisoformat(summary["next_due"]) - datetime.now(UTC)
    assert timedelta(minutes=50) < wait <= timedelta(hours=1)
    assert not (endpoint.folder / "ledger").exists()
    assert main(["sweep", "--config", str(endpoint.config_file())]) == 0
    assert re.search("next message is due in (1 h 0|59) min", capsys.readouterr().out)


@pytest.mark.parametrize("store", ["ForgetfulStore", "SlowStore"])
def test_nothing_due_is_0_too_where_the_store_cannot_tell_the_next_message(
    store: str, capsys: Capture, endpoint: Endpoint
) -> None:
    custom = {
        "store__kind": f"support.acme_stores:{store}",
        "store__options__zone": "UTC",
        "queues__default__kind": "postgresql",
    }
    endpoint.set_up(**custom).delay(due_in_seconds=3_600)

    assert main(["sweep", "--json", "--config", str(endpoint.config_file(**custom))]) == 0

    told = json.loads(capsys.readouterr().out)
    assert (told["outcome"], told["next_due"]) == ("idle", None)


def _assert_refused(
    capsys: Capture, endpoint: Endpoint, settings: Mapping[str, object], code: int, expected: str
) -> None:
    catalog = "SELECT relname FROM pg_class ORDER BY 1"
    before = endpoint.fetch(catalog)

    assert main(["sweep", "--config", str(endpoint.config_file(**settings))]) == code

    output = capsys.readouterr()
    assert output.out == ""
    (sentence,) = output.err.strip().splitlines()
    assert expected in sentence
    assert not (endpoint.folder / "ledger").exists()
    assert endpoint.fetch(catalog) == before
