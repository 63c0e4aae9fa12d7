"""The doctor on SQL Server: what is wrong, that alone, and the exit code.

A stand-in cannot show a database that is read-only or cannot read lists, READ_COMMITTED_SNAPSHOT
that is off, or a server's own names of indexes: those are in
tests/unit/doctor/test_sqlserver.py.
"""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from duesweep.core.address import SqlServerTable
from duesweep.drivers.sqlserver.dsn import OdbcDsn
from support.diagnosis import diagnosed
from support.routes import add_routes
from support.sqlserver_server import SqlServerEndpoint

STORE = "store.dsn"

Capture = pytest.CaptureFixture[str]


@pytest.fixture(params=["sqlserver", "msmq", "sql-persistence"])
def healthy(
    request: pytest.FixtureRequest, sqlserver_endpoint: SqlServerEndpoint
) -> SqlServerEndpoint:
    return sqlserver_endpoint.of_kind(request.param).set_up(retry__error_queue="error")


@pytest.fixture
def transport(sqlserver_endpoint: SqlServerEndpoint) -> SqlServerEndpoint:
    return sqlserver_endpoint.set_up(retry__error_queue="error")


@pytest.fixture
def msmq(msmq_endpoint: SqlServerEndpoint) -> SqlServerEndpoint:
    return msmq_endpoint.set_up(retry__error_queue="error")


ACCEPTED = ("--ignore", "read-committed-snapshot")


def _file(endpoint: SqlServerEndpoint) -> Path:
    if endpoint.kind != "msmq":
        return endpoint.config_file(retry__error_queue="error")
    file = endpoint.config_file(retry__error_queue="error")
    return add_routes(file, ("*@*", "default", "{queue}"), ("*", "default", "{destination}"))


def _table(endpoint: SqlServerEndpoint, name: str) -> str:
    return SqlServerTable(endpoint.server.database.name, endpoint.schema, name).sql


def test_what_is_well_is_0(capsys: Capture, healthy: SqlServerEndpoint) -> None:
    found = diagnosed(capsys, _file(healthy), "--ignore", "read-committed-snapshot")

    assert (found.code, found.to_mend()) == (0, {})
    assert found.of("sweep-start")["severity"] == "ok"
    assert found.of("server-version")["severity"] == "ok"


def test_index_on_due_is_looked_for_by_its_column(
    capsys: Capture, healthy: SqlServerEndpoint
) -> None:
    column, name = healthy.rows.due, f"[Index_{healthy.rows.due}]"
    beside = _beside(healthy.delayed)
    healthy.execute(f"DROP INDEX {name} ON {beside}")
    without = diagnosed(capsys, _file(healthy), *ACCEPTED)
    healthy.execute(f"CREATE INDEX [Of another name] ON {beside} ([{column}])")

    assert diagnosed(capsys, _file(healthy), *ACCEPTED).code == 0
    assert without.to_mend() == {("table-index", healthy.delayed): "warning"}
    advice = without.of("table-index")["advice"]
    assert advice == f"CREATE NONCLUSTERED INDEX {name} ON {healthy.delayed} ([{column}])"
    healthy.execute(advice)


@pytest.mark.parametrize(
    ("harm", "table", "expected"),
    [
        ("DROP TABLE {table}", "duesweep_journal", ("table-exists", "fault")),
        ("ALTER TABLE {table} DROP COLUMN stack", "duesweep_journal", ("table-shape", "fault")),
        ("DROP TABLE {table}", "Sales.Orders", ("table-exists", "fault")),
        ("DROP TABLE {table}", "error", ("table-exists", "fault")),
        ("ALTER TABLE {table} DROP COLUMN Body", "error", ("table-shape", "fault")),
        ("DROP INDEX [Index_Expires] ON {table}", "error", ("table-index", "warning")),
        ("DROP INDEX [Index_RowVersion] ON {table}", "Sales.Orders", ("table-index", "warning")),
        (
            "ALTER TABLE {table} ALTER COLUMN Headers varchar(max)",
            "error",
            ("headers-unicode", "warning"),
        ),
        (
            "ALTER TABLE {table} ALTER COLUMN Headers varchar(max)",
            "Sales.Orders.Delayed",
            ("headers-unicode", "fault"),
        ),
    ],
)
def test_what_is_wrong_is_said_and_nothing_else(
    harm: str,
    table: str,
    expected: tuple[str, str],
    capsys: Capture,
    transport: SqlServerEndpoint,
) -> None:
    name = _table(transport, table)
    transport.execute(harm.format(table=_beside(name)))

    found = diagnosed(capsys, _file(transport), *ACCEPTED)

    check, severity = expected
    assert (found.code, found.to_mend()) == (3, {(check, name): severity})
    assert found.of(check)["advice"]


def test_advice_on_headers_is_a_statement_that_mends_them(
    capsys: Capture, transport: SqlServerEndpoint
) -> None:
    if transport.server.stand_in is not None:
        pytest.skip(transport.server.unsupported("knows no NOT NULL in ALTER COLUMN"))
    error = _table(transport, "error")
    transport.execute(f"ALTER TABLE {error} ALTER COLUMN Headers varchar(max) NOT NULL")
    found = diagnosed(capsys, _file(transport), *ACCEPTED)

    transport.execute(found.of("headers-unicode")["advice"].partition(", while")[0])

    assert diagnosed(capsys, _file(transport), *ACCEPTED).code == 0


def test_two_tables_of_the_message_store_are_a_fault(
    capsys: Capture, msmq: SqlServerEndpoint
) -> None:
    older = _table(msmq, "Sales.Orders.timeouts")
    msmq.execute(
        f"CREATE TABLE {older} (Id nvarchar(250) NOT NULL PRIMARY KEY, Destination nvarchar(200),"
        " State varbinary(max), Time datetime, Headers varbinary(max) NOT NULL, RetryCount int)"
    )

    found = diagnosed(capsys, _file(msmq))

    assert found.to_mend()[("one-delayed-table", STORE)] == "fault"
    assert "store.delayed_table" in found.of("one-delayed-table")["advice"]
    assert found.of("lock-escalation")["severity"] == "skipped"


def test_message_store_without_a_route_is_a_fault(capsys: Capture, msmq: SqlServerEndpoint) -> None:
    found = diagnosed(capsys, msmq.config_file(), *ACCEPTED)

    assert (found.code, found.to_mend()) == (3, {("route", "[[route]]"): "fault"})


def test_messages_without_a_time_are_counted(capsys: Capture, msmq: SqlServerEndpoint) -> None:
    msmq.delay()
    msmq.execute(f"UPDATE {msmq.delayed} SET Time = NULL")

    found = diagnosed(capsys, _file(msmq))

    assert found.code == 3
    assert found.of("store-notices")["severity"] == "warning"
    assert found.of("store-notices")["found"].startswith("1 messages in")
    assert found.of("store-notices")["advice"].startswith("Give them")


@pytest.fixture
def sweeper(transport: SqlServerEndpoint) -> Iterator[tuple[str, str]]:
    """A login that has all it needs: its dsn, and the name of its user."""
    name, password = f"sweeper_{uuid.uuid4().hex[:12]}", f"Throw-away-{uuid.uuid4().hex}"
    transport.execute(f"CREATE LOGIN [{name}] WITH PASSWORD = '{password}'")
    try:
        transport.execute(f"CREATE USER [{name}] FOR LOGIN [{name}]")
        tables = ["journal", "attempts", "sweeps", "bindings"]
        for table in [transport.delayed, *map(transport.own_table, tables)]:
            transport.execute(
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON {_beside(table)} TO [{name}]"
            )
        for queue in ("Sales.Orders", "error"):
            table = _beside(_table(transport, queue))
            transport.execute(f"GRANT SELECT, INSERT ON {table} TO [{name}]")
        pairs = OdbcDsn.parse(transport.server.database.dsn).pairs
        yield OdbcDsn(pairs | {"uid": name, "pwd": password}).text(), name
    finally:
        # A stand-in drops no user that has been granted something.
        transport.server.database.drop_tables()
        transport.execute(f"DROP USER IF EXISTS [{name}]")
        transport.execute(f"DROP LOGIN [{name}]")


@pytest.mark.parametrize(
    ("right", "table"), [("DELETE", "Sales.Orders.Delayed"), ("INSERT", "error")]
)
def test_missing_right_is_named_with_the_grant(
    right: str,
    table: str,
    capsys: Capture,
    transport: SqlServerEndpoint,
    sweeper: tuple[str, str],
) -> None:
    dsn, user = sweeper
    file = transport.config_file(store__dsn=dsn, retry__error_queue="error")
    name = _table(transport, table)
    transport.execute(f"REVOKE {right} ON {_beside(name)} FROM [{user}]")

    found = diagnosed(capsys, file, *ACCEPTED)

    assert (found.code, found.to_mend()) == (3, {("table-rights", name): "fault"})
    advice = found.of("table-rights")["advice"]
    assert advice == (
        f"GRANT {right} ON {_beside(name)} TO [{user}],"
        f" in database {transport.server.database.name}"
    )
    transport.execute(advice.partition(", in")[0])
    assert diagnosed(capsys, file, *ACCEPTED).code == 0
    assert "Throw-away" not in found.text


def test_server_out_of_reach_is_a_fault(capsys: Capture, transport: SqlServerEndpoint) -> None:
    dsn = "Server=127.0.0.1,1;Database=nsb;Uid=sweeper;Pwd=s3cret"

    found = diagnosed(capsys, transport.config_file(store__dsn=dsn))

    assert (found.code, found.to_mend()) == (3, {("server-reachable", STORE): "fault"})
    assert "s3cret" not in found.text


def _beside(table: str) -> str:
    """A name without its database, as GRANT takes it."""
    return table.partition(".")[2]
