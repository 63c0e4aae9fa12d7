"""One session with SQL Server: how it is opened, its transactions, its statements, arrays of rows,
and the JDBC address of the same database.
"""

import json
import math
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Any

from duesweep.core.errors import (
    DestinationError,
    DuesweepError,
    MessageError,
    StoreError,
    TransactionLostError,
    refuse_dropped,
)
from duesweep.core.policy import SessionWaits
from duesweep.drivers.sqlserver.binding import (
    UNLIMITED_BYTES,
    UNLIMITED_TEXT,
    adapted,
    adapted_value,
    bind,
    decode_utf16,
    group_rows,
    literal,
    size_of,
    size_of_all,
    text_of,
)
from duesweep.drivers.sqlserver.dsn import OdbcDsn, driver_library, odbc, split_jdbc_url
from duesweep.drivers.sqlserver.errors import (
    connect_errors,
    destination_errors,
    map_errors,
    number_of,
)
from duesweep.drivers.sqlserver.silence import SilenceWatch, refuse_closed_port
from duesweep.drivers.statements import (
    Named,
    Names,
    Session,
    describe_statement,
    statement,  # noqa: TID251 - a driver
)

if TYPE_CHECKING:
    import pyodbc

# Half-open connections are noticed after about this long. No silent reconnecting: the new session
# would not hold the locks of the old one.
_KEEPALIVE = {"KeepAlive": "15", "KeepAliveInterval": "5", "ConnectRetryCount": "0"}
_CLOSE_SECONDS = 2.0
_COMMITTABLE = 1
# After an error at the end of a text, Babelfish leaves the setting as it was in the text.
_ROLL_BACK = "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION; SET XACT_ABORT OFF"
# A slice runs a dozen statements, and three more for each destination.
_KEPT_CURSORS = 256


@dataclass(slots=True)
class Prepared:
    """A cursor and the text that it has prepared. pyodbc prepares a text again unless it is the
    same object. `is_reusable` False: the cursor is closed after its use.
    """

    cursor: "pyodbc.Cursor"
    text: str
    is_reusable: bool = True

    def execute(self, parameters: Sequence[object]) -> None:
        """Execute the statement with these parameters."""
        self.cursor.setinputsizes([size_of(value) for value in parameters])
        self.cursor.execute(self.text, _with_nulls(parameters))


@dataclass(slots=True)
class RawSession:
    """A session as pyodbc has it, who watches it, and how deep its transactions are nested.
    `prepared` are the cursors that it keeps, by their text and their time-out; the one used last is
    the last. `is_open`: the last answer said that its transaction is open.
    """

    raw: "pyodbc.Connection"
    watch: SilenceWatch
    depth: int = 0
    prepared: dict[tuple[str, int], Prepared] = field(default_factory=dict)
    is_open: bool = False

    @contextmanager
    def keep_cursor(self, text: str) -> Iterator[Prepared]:
        """A cursor for a statement, kept for the next time: a new one would ask the server again
        to prepare the statement and to describe its parameters. All results have to be read, or
        the cursor is not reusable.
        """
        self.is_open = False
        key = text, self.raw.timeout
        prepared = self.prepared.pop(key, None) or Prepared(self.raw.cursor(), text)
        is_kept = False
        try:
            yield prepared
            is_kept = prepared.is_reusable
        finally:
            if not is_kept:
                _close(prepared.cursor)
        if is_kept:
            self.prepared[key] = prepared
        if len(self.prepared) > _KEPT_CURSORS:
            oldest = next(iter(self.prepared))
            _close(self.prepared.pop(oldest).cursor)


class SqlServerSession(Session):
    """See `Session`. Outside of a transaction each statement commits by itself."""

    def __init__(
        self, session: RawSession, dsn: OdbcDsn, waits: SessionWaits, names: Names
    ) -> None:
        self.waits = waits
        self.names = names
        self._session = session
        self._raw = session.raw
        self._watch = session.watch
        self._dsn = dsn

    def __exit__(self, *_: object) -> None:
        self._watch.restart_timer(_CLOSE_SECONDS)
        with suppress(odbc().Error):
            self._raw.close()
        self._watch.close()

    # Statements

    def rows_of_each(self, *named: Named, what: str) -> list[list[Any]]:
        """There is a list for each SELECT. The next ones know the variables of earlier ones."""
        with self._sent(*named, what=what) as sent:
            return _fetch_each(sent.cursor)

    def commit_each(self, *named: Named, what: str) -> list[list[Any]]:
        """The rows of several named statements as `rows_of_each` returns them, in a transaction
        that begins and ends with them: no lock waits for this process. The first statement that
        fails rolls it back, and is the last. In an open transaction they are a part of that.
        """
        try:
            all_of_it: list[Named] = [("begin_at_once", {}, {}), *named, ("commit_at_once", {}, {})]
            return self.rows_of_each(*all_of_it, what=what)
        except BaseException:
            if not self.is_in_transaction:
                self._roll_back()
            raise

    def execute(self, name: str, /, **values: object) -> int:
        with self._sent((name, values, {}), what=name) as sent:
            count = int(sent.cursor.rowcount)
            _drain(sent.cursor)
        return count

    def query(self, name: str, /, **literals: object) -> str:
        quoted = {key: literal(str(adapted_value(value))) for key, value in literals.items()}
        return statement("sqlserver", name).format(**self.names, **quoted)

    def script(self, text: str) -> None:
        self._run(text)

    def read_while(
        self, wanted: Callable[[Any], bool], *named: Named, what: str
    ) -> tuple[list[Any], list[list[Any]] | None]:
        """Rows of the first of the named statements, one at a time, up to the first row after which
        no more are `wanted`; and the rows of each of the others. None: the first one has more rows.
        """
        rows: list[Any] = []
        with self._sent(*named, what=what) as sent:
            sent.is_reusable = False
            while row := sent.cursor.fetchone():
                rows.append(row)
                self._watch.restart_timer()
                if not wanted(row):
                    if sent.cursor.fetchone() is not None:
                        return rows, None
                    break
            others = _fetch_each(sent.cursor) if sent.cursor.nextset() else []
            sent.is_reusable = True
        return rows, others

    @contextmanager
    def pages(
        self, name: str, size: int, values: Mapping[str, object]
    ) -> Iterator[Iterator[list[Any]]]:
        """The rows of the named statement in pages of `size`, as the server sends them. Within the
        block no other statement can run on this session.
        """
        with self._sent((name, values, {}), what=name) as sent:
            sent.is_reusable = False
            yield iter(lambda: self._fetch_page(sent.cursor, size), [])

    def _fetch_page(self, cursor: "pyodbc.Cursor", size: int) -> list[Any]:
        self._watch.restart_timer()
        try:
            return list(cursor.fetchmany(size))
        finally:
            # Until the next page is asked for, this process does not wait for the server.
            self._watch.restart_timer(math.inf)

    def execute_many(self, name: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Run the named statement once for each of these sets of values, all of the same names."""
        if not rows:
            return
        adapted_rows = [adapted(row) for row in rows]
        text, order = text_of(name, tuple(sorted(adapted_rows[0])))
        values = [[row[value] for value in order] for row in adapted_rows]
        with self._prepared(name, text.format(**self.names)) as prepared:
            prepared.cursor.setinputsizes(
                [size_of_all(column) for column in zip(*values, strict=True)]
            )
            prepared.cursor.executemany(prepared.text, list(map(_with_nulls, values)))
            _drain(prepared.cursor)

    def error_number(self, name: str) -> int | None:
        """The number of the error that the named statement, which changes nothing, meets."""
        try:
            with self.transaction():
                self.execute(name)
        except StoreError as error:
            return number_of(error.__cause__) if isinstance(error.__cause__, odbc().Error) else None
        return None

    @contextmanager
    def wait_longer(self, seconds: float) -> Iterator[None]:
        waits, seconds_before = replace(self.waits, answer_seconds=seconds), self._raw.timeout
        self._raw.timeout = max(1, int(waits.statement_seconds))
        try:
            with self._watch.wait_longer(seconds):
                yield
        finally:
            self._raw.timeout = seconds_before

    @contextmanager
    def _sent(self, *named: Named, what: str) -> Iterator[Prepared]:
        """The cursor on which the named statements were sent."""
        bound = [
            bind(name, {**self.names, **names}, adapted(values)) for name, values, names in named
        ]
        with self._prepared(what, "".join(text for text, _ in bound)) as prepared:
            prepared.execute([value for _, parameters in bound for value in parameters])
            yield prepared

    @contextmanager
    def _prepared(self, name: str, text: str) -> Iterator[Prepared]:
        """A kept cursor for one answer to the named statement, of which this is the text."""
        with (
            map_errors(lambda: describe_statement(name, statement("sqlserver", name), self.names)),
            self._watch.watch_answer(),
            self._session.keep_cursor(text) as prepared,
        ):
            yield prepared

    # Transactions

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self._session.depth:
            with self._savepoint():
                yield
            return
        # A statement that was cut short may have left it on, and rows would go uncounted.
        self._run("SET NOCOUNT OFF; BEGIN TRANSACTION")
        self._session.depth = 1
        try:
            yield
            self._session.depth = 0
            self._run("COMMIT TRANSACTION")
        except BaseException:
            self._session.depth = 0
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        # A session that is gone has rolled it back already.
        with suppress(StoreError):
            self._run(_ROLL_BACK)

    @property
    def is_in_transaction(self) -> bool:
        """Whether this is in the block of a transaction."""
        return self._session.depth > 0

    def require_transaction(self) -> None:
        """Raise `TransactionLostError` where a transaction was begun but is not open any more: the
        next statements would be committed one by one.
        """
        if self.is_in_transaction and not (self._session.is_open or self._can_commit()):
            raise TransactionLostError(
                "The transaction has ended without an error",
                advice="look for triggers that roll back",
                destination_is_at_fault=True,
            )

    def _can_commit(self) -> bool:
        """Whether a transaction is open and can still be committed."""
        with self._cursor() as cursor:
            (state,) = cursor.execute("SELECT XACT_STATE()").fetchone()
        return bool(state == _COMMITTABLE)

    @contextmanager
    def _savepoint(self) -> Iterator[None]:
        name = f"duesweep_{self._session.depth}"
        self._run(f"SAVE TRANSACTION {name}")
        self._session.depth += 1
        try:
            yield
            self.require_transaction()
        except Exception as error:
            self._roll_back_to(name, error)
            raise
        finally:
            self._session.depth -= 1

    def _roll_back_to(self, name: str, error: Exception) -> None:
        if isinstance(error, TransactionLostError):
            return
        if not self._can_commit():
            text = error.text if isinstance(error, DuesweepError) else str(error)
            advice = error.advice if isinstance(error, DuesweepError) else None
            is_destinations = isinstance(error, DestinationError | MessageError)
            raise TransactionLostError(
                text, destination_is_at_fault=is_destinations, advice=advice
            ) from error
        self._run(f"ROLLBACK TRANSACTION {name}")

    def _run(self, text: str) -> None:
        with self._cursor() as cursor:
            cursor.execute(text)
            _drain(cursor)

    @contextmanager
    def _cursor(self) -> "Iterator[pyodbc.Cursor]":
        """A cursor for one answer."""
        self._session.is_open = False
        with map_errors(), self._watch.watch_answer():
            cursor = self._raw.cursor()
            try:
                yield cursor
            finally:
                _close(cursor)

    # Arrays of rows

    def insert_messages(
        self, table: object, name: str, names: Names, rows: Sequence[tuple[str, bytes | None]]
    ) -> None:
        """Run the named statement for each row; its values are id, headers and body.

        Raises `RefusedMessageError` where a row is at fault or did not arrive, `DestinationError`
        where `table` is at fault.
        """
        text, order = text_of(name, ("body", "headers", "id"))
        if order != ["id", "headers", "body"]:
            raise ValueError(f"{name} takes {order}, not id, headers, body")
        ids = [str(uuid.uuid4()) for _ in rows]
        with destination_errors(table), self._watch.watch_answer():
            with self._short_time_out():
                last = self._fetch_row("last_message", names, {}).number
                self._insert(text.format(**names), ids, rows)
                self._watch.restart_timer()
            seen = {"ids": json.dumps(ids), "number": last}
            row = self._fetch_row("count_arrived", names, seen)
        self._session.is_open = row.state == _COMMITTABLE
        refuse_dropped(f"Queue table {table}", row.arrived, len(rows))

    def _insert(
        self, text: str, ids: Sequence[str], rows: Sequence[tuple[str, bytes | None]]
    ) -> None:
        with self._session.keep_cursor(text) as prepared:
            cursor = prepared.cursor
            cursor.fast_executemany = True
            # Said beforehand: a body of None would go out as text, which no binary column takes.
            cursor.setinputsizes([UNLIMITED_TEXT, UNLIMITED_TEXT, UNLIMITED_BYTES])
            for start, group in group_rows(rows):
                self._watch.restart_timer()
                numbered = zip(ids[start:], group, strict=False)
                cursor.executemany(prepared.text, [(i, *row) for i, row in numbered])
                _drain(cursor)

    @contextmanager
    def _short_time_out(self) -> Iterator[None]:
        """In the block, cursors have a third of the time-out. While an array of parameters is sent,
        pyodbc holds Python's lock, so the watch cannot run, and the driver waits three times its
        time-out for a silent server.
        """
        patience = self._raw.timeout
        self._raw.timeout = max(1, int(self.waits.answer_seconds / 3))
        try:
            yield
        finally:
            self._raw.timeout = patience

    def _fetch_row(self, name: str, names: Names, values: Mapping[str, object]) -> Any:
        text, parameters = bind(name, names, values)
        with self._session.keep_cursor(text) as prepared:
            prepared.execute(parameters)
            row = prepared.cursor.fetchone()
            _drain(prepared.cursor)
        return row

    def jdbc_address(self, answer_seconds: float, url: str | None) -> tuple[str, dict[str, str]]:
        own = jdbc_properties(replace(self.waits, answer_seconds=answer_seconds))
        if url is not None:
            address, given = split_jdbc_url(url)
            own = self._dsn.credentials() | own
            # The driver takes names in any case.
            taken = {name.lower() for name in own}
            return address, {k: v for k, v in given.items() if k.lower() not in taken} | own
        url, properties = self._dsn.jdbc()
        with self._cursor() as cursor:
            (database,) = cursor.execute("SELECT DB_NAME()").fetchone()
        return url, {"databaseName": database, **properties, **own}


def connect(dsn: str, waits: SessionWaits) -> SqlServerSession:
    """Open a session at READ COMMITTED, with time-outs on everything.

    Raises `ConfigError` for a dsn or a login that is wrong, `StoreError` where the server cannot be
    reached.
    """
    parsed = OdbcDsn.parse(dsn)
    more = {"APP": "duesweep", **_KEEPALIVE}
    if not {"driver", "dsn", "filedsn"} & set(parsed.pairs):
        more["Driver"] = driver_library()
    pyodbc = odbc()
    refuse_closed_port(parsed)
    watch = SilenceWatch(parsed.server, parsed.port, waits.answer_seconds)
    has_password = not {"pwd", "trusted_connection", "authentication"}.isdisjoint(parsed.pairs)
    with (
        connect_errors(parsed.server, has_password=has_password),
        watch.watch_opening(waits.connect_seconds),
    ):
        # Longer than the watch waits: it can tell a silent server from a missing one.
        login_seconds = ceil(waits.connect_seconds) + 1
        raw = pyodbc.connect(parsed.text(**more), autocommit=True, timeout=login_seconds)
        raw.timeout = max(1, int(waits.statement_seconds))
        settings = (
            # An error ends its statement only, so savepoints can be rolled back to.
            "XACT_ABORT OFF",
            "NOCOUNT OFF",
            "TRANSACTION ISOLATION LEVEL READ COMMITTED",
            f"LOCK_TIMEOUT {waits.lock_seconds * 1_000:.0f}",
            # In a deadlock, the sweep is the victim and not an endpoint.
            "DEADLOCK_PRIORITY LOW",
        )
        cursor = raw.cursor()
        cursor.execute(" ".join(f"SET {setting};" for setting in settings))
        _drain(cursor)
        cursor.close()
    for kind in (pyodbc.SQL_WCHAR, pyodbc.SQL_WVARCHAR, pyodbc.SQL_WLONGVARCHAR):
        raw.add_output_converter(kind, decode_utf16)
    return SqlServerSession(RawSession(raw, watch), parsed, waits, {})


def jdbc_properties(waits: SessionWaits) -> dict[str, str]:
    """Connection properties of a JDBC session."""
    return {
        "driver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
        "applicationName": "duesweep plan",
        # In seconds; socketTimeout and lockTimeout in milliseconds.
        "loginTimeout": f"{ceil(waits.connect_seconds)}",
        "queryTimeout": f"{ceil(waits.statement_seconds)}",
        "cancelQueryTimeout": f"{ceil(waits.connect_seconds)}",
        "socketTimeout": f"{round(waits.answer_seconds * 1_000)}",
        "lockTimeout": f"{round(waits.lock_seconds * 1_000)}",
    }


def _with_nulls(parameters: Sequence[object]) -> list[object]:
    """For each None, pyodbc would ask the server of which type the parameter is; not for this NULL,
    which is declared as any other value.
    """
    return [odbc().BinaryNull if value is None else value for value in parameters]


def _fetch_each(cursor: "pyodbc.Cursor") -> list[list[Any]]:
    """The rows of this result and of the next ones. Results of procedures and assignments have no
    columns, and are left out. All are read: an error after the first one is raised only when it
    is read.
    """
    found = []
    is_next = True
    while is_next:
        if cursor.description is not None:
            found.append(list(cursor.fetchall()))
        is_next = cursor.nextset()
    return found


def _drain(cursor: "pyodbc.Cursor") -> None:
    """Read all results: an error after the first result is raised only when it is read."""
    while cursor.nextset():
        pass


def _close(cursor: "pyodbc.Cursor") -> None:
    with suppress(odbc().Error):
        cursor.close()
