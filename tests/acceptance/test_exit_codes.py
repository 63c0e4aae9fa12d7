"""A sweep that cannot start ends with one sentence and the right exit code, and writes nothing.

Mistakes in settings, logins and names are in test_mistakes.py, missing rights in test_rights.py.
"""

import re
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime, timedelta

import pytest
from psycopg.conninfo import make_conninfo

from duesweep.core.account import SweepReport
from support.endpoint import Endpoint

NOWHERE = "postgresql://postgres@127.0.0.1:1/postgres"
STORE, QUEUES = "store__dsn", "queues__default__dsn"
DELAYED = '"public"."Sales.Orders.Delayed"'


def _harmed(*statements: str) -> Callable[[Endpoint], Endpoint]:
    def prepare(endpoint: Endpoint) -> Endpoint:
        endpoint.execute("; ".join(statements))
        return endpoint

    return prepare


def _connecting(setting: str, **parameters: str) -> Callable[[Endpoint], Endpoint]:
    return lambda endpoint: endpoint.having(**{setting: make_conninfo(endpoint.dsn, **parameters)})


def _set(**settings: object) -> Callable[[Endpoint], Endpoint]:
    return lambda endpoint: endpoint.having(**settings)


READ_ONLY = {"options": "-c default_transaction_read_only=on"}
# The harm to an endpoint that is set up, the code and the sentence.
REFUSED: dict[str, tuple[Callable[[Endpoint], Endpoint], int, str]] = {
    "no delayed table": (_harmed(f"DROP TABLE {DELAYED}"), 2, f"no delayed table {DELAYED}"),
    "no journal": (_harmed("DROP TABLE duesweep_journal"), 2, "Run the command `setup` once"),
    "delayed table of another server": (
        _harmed(
            f"DROP TABLE {DELAYED}",
            "CREATE FOREIGN DATA WRAPPER nowhere",
            "CREATE SERVER other FOREIGN DATA WRAPPER nowhere",
            f"CREATE FOREIGN TABLE {DELAYED} (id uuid, headers text, body bytea, due timestamptz)"
            " SERVER other",
        ), 2, "cannot be the delayed table"),
    "read-only store": (
        _connecting(STORE, **READ_ONLY), 2, "store.dsn opens is read-only. Connect to the primary"),
    "read-only queues": (
        _connecting(QUEUES, **READ_ONLY), 2,
        "queues.default.dsn opens is read-only. Connect to the primary"),
    "unknown time zone": (
        _set(store__writer_time_zone="Mars/Olympus"), 2, "store.writer_time_zone is"),
    "queues on a server that does not answer": (_set(**{QUEUES: NOWHERE}), 4, "127.0.0.1:1/"),
    "queues in an absent database": (
        _connecting(QUEUES, dbname="absent"), 2, '"absent" does not exist'),
    "queues in a wrong database": (
        _connecting(QUEUES, dbname="postgres"), 2, 'no queue table "public"."Sales.Orders"'),
    "dsn of queues that cannot be read": (
        _set(**{QUEUES: "nonsense"}), 2, "queues.default.dsn is wrong: it is neither"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_sweep_that_cannot_start_is_refused(what: str, endpoint: Endpoint) -> None:
    prepare, code, expected = REFUSED[what]

    _assert_refused(prepare(endpoint.set_up()), code, expected)


def test_database_whose_text_has_no_encoding_is_refused(endpoint: Endpoint) -> None:
    name = f"{endpoint.server.admin.info.dbname}_ascii"
    endpoint.execute(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    try:
        _assert_refused(_connecting(STORE, dbname=name)(endpoint), 2, "is encoded in SQL_ASCII")
    finally:
        endpoint.execute(f"DROP DATABASE {name}")


def _assert_refused(endpoint: Endpoint, code: int, expected: str) -> None:
    catalog = "SELECT relname FROM pg_class ORDER BY 1"
    before = endpoint.fetch(catalog)

    ran = endpoint.run("sweep")

    (sentence,) = ran.err.strip().splitlines()
    assert (ran.code, ran.out, expected in sentence) == (code, "", True), ran
    assert not (endpoint.folder / "ledger").exists()
    assert endpoint.fetch(catalog) == before


def test_store_that_only_this_process_reaches_is_swept_in_it(endpoint: Endpoint) -> None:
    """JDBC knows no Unix sockets, and only Spark reads by it."""
    endpoint.set_up("Billing").delay()
    (row,) = endpoint.fetch("SHOW unix_socket_directories")
    by_socket = _connecting(STORE, host=row.unix_socket_directories)(endpoint)

    assert by_socket.document("sweep")["dispatched"] == 1


def test_nothing_due_is_0_and_writes_nothing(endpoint: Endpoint) -> None:
    endpoint.set_up().delay(due_in_seconds=3_600)

    summary = endpoint.document("sweep")

    names = [field.name for field in fields(SweepReport) if field.repr]
    others = ("held_back", "next_due", "next_attempt", "exit_code", "error", "without_spark")
    assert list(summary) == [*names, *others]
    assert summary["source"].endswith("/public.Sales.Orders.Delayed")
    assert (summary["outcome"], summary["found"], summary["over_limit"]) == ("idle", 0, 0)
    assert summary["sweep_id"] is None
    wait = datetime.fromisoformat(summary["next_due"]) - datetime.now(UTC)
    assert timedelta(minutes=50) < wait <= timedelta(hours=1)
    assert not (endpoint.folder / "ledger").exists()
    ran = endpoint.run("sweep")
    assert ran.code == 0
    assert re.search("next message is due in (1 h 0|59) min", ran.out)


@pytest.mark.parametrize("store", ["ForgetfulStore", "SlowStore"])
def test_nothing_due_is_0_too_where_the_store_cannot_tell_the_next_message(
    store: str, endpoint: Endpoint
) -> None:
    custom = endpoint.having(
        store__kind=f"support.acme_stores:{store}",
        store__options__zone="UTC",
        queues__default__kind="postgresql",
    )
    custom.set_up().delay(due_in_seconds=3_600)

    told = custom.document("sweep")

    assert (told["outcome"], told["next_due"]) == ("idle", None)
