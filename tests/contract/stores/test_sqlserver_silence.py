"""A server that accepts what it is sent and never answers: each wait for it ends in time."""

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from duesweep.core.timeouts import DEFAULT_TIMEOUTS, Limits
from duesweep.drivers.sqlserver import binding
from duesweep.drivers.sqlserver.connect import connect
from duesweep.drivers.sqlserver.connection import SqlServerConnection
from duesweep.drivers.sqlserver.dsn import OdbcDsn
from duesweep.errors import StoreError
from duesweep.stores.sqlserver.locks import SqlServerLocks
from support.proxy import Proxy, Way, proxied

if TYPE_CHECKING:
    from support.sqlserver_server import SqlServer


# To open a session may take long on a machine with much to do.
_LIMITS = Limits(connect_seconds=20, answer_seconds=2, lock_seconds=1)
_IMPATIENT = Limits(connect_seconds=2, answer_seconds=2, lock_seconds=1)
# A machine with much to do is late; a wait without end is later.
_LATE_SECONDS = 60.0
_SILENT = r"SQL Server at .* has not answered for \d+ s; .*timeouts\.silence_seconds"

_CROSS = "SELECT a.object_id FROM sys.all_objects a CROSS JOIN sys.all_objects b"
# No statement in sql/ returns so many rows.
_MANY = "many"

Ask = Callable[[SqlServerConnection], object]


@pytest.fixture
def proxy(sqlserver: "SqlServer") -> Iterator[Proxy]:
    """In front of the server."""
    with proxied(OdbcDsn.parse(sqlserver.database.dsn).port) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def _many(monkeypatch: pytest.MonkeyPatch) -> None:
    known = binding.statement

    def statement(dialect: str, name: str) -> str:
        text = f"SELECT REPLICATE('x', 4000) AS x FROM ({_CROSS}) c"
        return text if name == _MANY else known(dialect, name)

    monkeypatch.setattr(binding, "statement", statement)


@pytest.fixture(params=["Encrypt=no", "Encrypt=yes;TrustServerCertificate=yes"])
def dsn(request: pytest.FixtureRequest, sqlserver: "SqlServer", proxy: Proxy) -> str:
    """The same database through the proxy."""
    pairs = (
        OdbcDsn.parse(sqlserver.database.dsn).pairs
        | OdbcDsn.parse(f"Server=127.0.0.1,{proxy.port};{request.param}").pairs
    )
    return OdbcDsn(pairs).text()


def _in_time(act: Callable[[], object], seconds: float) -> None:
    started = time.monotonic()
    with pytest.raises(StoreError, match=_SILENT) as caught:
        act()
    assert caught.value.transient
    assert time.monotonic() - started < seconds + _LATE_SECONDS


@pytest.mark.parametrize("answered_bytes", [0, 20, 60, 500, 1_500])
def test_session_is_not_waited_for(dsn: str, proxy: Proxy, answered_bytes: int) -> None:
    proxy.hold_after(answered_bytes, Way.TO_CLIENT)
    started = time.monotonic()

    with pytest.raises(StoreError) as caught, connect(dsn, _IMPATIENT):
        pass

    assert caught.value.transient
    assert time.monotonic() - started < _IMPATIENT.connect_seconds + _LATE_SECONDS


def _insert(session: SqlServerConnection) -> None:
    names = {"queue": "tempdb..duesweep_none"}
    session.insert_messages("none", "insert_message", names, [("{}", b"body")])


_ASKS: dict[str, Ask] = {
    "statement": lambda session: session.rows("describe_session"),
    "begin": SqlServerConnection.begin,
    "state": SqlServerConnection.is_alive_in_transaction,
    "script": lambda session: session.script("SELECT 1"),
    "insert": _insert,
}


@pytest.mark.parametrize("ask", _ASKS.values(), ids=_ASKS)
def test_statement_is_not_waited_for(dsn: str, proxy: Proxy, ask: Ask) -> None:
    with connect(dsn, _LIMITS) as session:
        proxy.fall_silent()

        _in_time(lambda: ask(session), _LIMITS.answer_seconds)
        _in_time(lambda: ask(session), 0)


def test_array_of_parameters_is_not_waited_for(
    dsn: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Pyodbc holds Python's lock meanwhile, so the proxy's threads wait too.
    monkeypatch.setattr(SqlServerConnection, "_fetch_value", lambda *_: proxy.fall_silent())
    with connect(dsn, _LIMITS) as session:
        _in_time(lambda: _insert(session), _LIMITS.answer_seconds)


def test_rows_that_stop_coming_are_not_waited_for(dsn: str, proxy: Proxy) -> None:
    def look(_: object) -> bool:
        proxy.fall_silent()
        return True

    with connect(dsn, _LIMITS) as session:
        _in_time(lambda: session.read_while(look, _MANY), _LIMITS.answer_seconds)


def test_commit_is_not_waited_for(dsn: str, proxy: Proxy) -> None:
    with connect(dsn, _LIMITS) as session:
        session.begin()
        proxy.fall_silent()

        _in_time(session.commit, _LIMITS.answer_seconds)


def test_rollback_is_not_waited_for(dsn: str, proxy: Proxy) -> None:
    with connect(dsn, _LIMITS) as session:
        session.begin()
        proxy.fall_silent()
        started = time.monotonic()

        session.rollback()

        assert time.monotonic() - started < _LIMITS.answer_seconds + _LATE_SECONDS


def test_end_of_a_session_is_not_waited_for(dsn: str, proxy: Proxy) -> None:
    with connect(dsn, _LIMITS) as session:
        session.begin()
        proxy.fall_silent()
        started = time.monotonic()
    assert time.monotonic() - started < _LATE_SECONDS


def test_lock_that_another_session_holds_is_not_waited_for(
    sqlserver: "SqlServer",
) -> None:
    limits = replace(_LIMITS, answer_seconds=8)
    with (
        connect(sqlserver.database.dsn, limits) as holder,
        connect(sqlserver.database.dsn, limits) as waiter,
    ):
        lock = f"duesweep/{uuid.uuid4()}"
        assert SqlServerLocks(holder).try_lock(lock)

        assert not SqlServerLocks(waiter).try_lock(lock)

        SqlServerLocks(holder).unlock(lock)
        assert SqlServerLocks(waiter).try_lock(lock)


def test_session_that_was_closed_has_ended_on_the_server(sqlserver: "SqlServer") -> None:
    with connect(sqlserver.database.dsn, _LIMITS) as session:
        session.script("CREATE TABLE held (id int)")
        session.begin()
        session.script("INSERT INTO held VALUES (1)")

    sqlserver.database.execute("DROP TABLE held")


def test_statement_that_is_slow_on_a_server_that_lives_is_told_apart(
    sqlserver: "SqlServer",
) -> None:
    limits = replace(DEFAULT_TIMEOUTS.task, lock_seconds=60)
    with connect(sqlserver.database.dsn, limits) as session:
        session.script("CREATE TABLE locked (id int)")
        session.script("INSERT INTO locked VALUES (1)")
        session._raw.timeout = 1  # noqa: SLF001 - instead of 15
        with sqlserver.database.transaction() as other:
            other.execute("UPDATE locked SET id = 2")
            with pytest.raises(StoreError, match="timeout expired"):
                session.script("UPDATE locked SET id = 3")
    sqlserver.database.drop_tables()
