"""Named statements on one session of SQL Server."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from duesweep.drivers.sqlserver.binding import Names, bind, describe_statement, literal, text_of
from duesweep.drivers.sqlserver.errors import number_of
from duesweep.drivers.sqlserver.library import odbc
from duesweep.drivers.sqlserver.transactions import Prepared, RawSession, Transactions, drain
from duesweep.drivers.sqlserver.values import adapted
from duesweep.errors import StoreError
from duesweep.sql import statement

if TYPE_CHECKING:
    import pyodbc

# ODBC's SQL_WVARCHAR and SQL_VARBINARY.
TEXT, BYTES = (-9, 0, 0), (-3, 0, 0)
_LONG_TEXT, _LONG_BYTES = 2_000, 8_000


class SqlServerStatements(Transactions):
    """See `Statements`. `names` are what the statements have in braces, quoted already."""

    def __init__(self, session: RawSession, names: Names) -> None:
        super().__init__(session)
        self._names = names

    def named(self, names: Names) -> "SqlServerStatements":
        """The statements of the same session with these names."""
        return SqlServerStatements(self._session, names)

    def execute(self, name: str, /, **values: object) -> int:
        """Run the named statement; returns the number of rows that it touched."""
        with self._sent(name, values) as sent:
            count = int(sent.cursor.rowcount)
            drain(sent.cursor)
        return count

    def rows(self, name: str, /, **values: object) -> list[Any]:
        """The rows that the named statement returns, with their columns as attributes."""
        with self._sent(name, values) as sent:
            cursor = sent.cursor
            # What a procedure or an assignment answers comes before the rows, and has none.
            while cursor.description is None and cursor.nextset():
                pass
            rows = list(cursor.fetchall())
            drain(cursor)
        return rows

    def row(self, name: str, /, **values: object) -> Any:
        """The only row that the named statement returns."""
        (row,) = self.rows(name, **values)
        return row

    def query(self, name: str, /, **literals: str) -> str:
        """The text of a statement for JDBC, with `literals` quoted in it."""
        quoted = {key: literal(value) for key, value in literals.items()}
        return statement("sqlserver", name).format(**self._names, **quoted)

    def read_while(
        self, wanted: Callable[[Any], bool], name: str, /, **values: object
    ) -> tuple[list[Any], bool]:
        """Rows of the named statement, one at a time, up to the first after which no more are
        `wanted`; and whether these are all.
        """
        rows: list[Any] = []
        with self._sent(name, values) as sent:
            sent.is_reusable = False
            while row := sent.cursor.fetchone():
                rows.append(row)
                self._watch.restart_timer()
                if not wanted(row):
                    return rows, sent.cursor.fetchone() is None
            drain(sent.cursor)
            sent.is_reusable = True
        return rows, True

    @contextmanager
    def pages(
        self, name: str, size: int, values: Mapping[str, object]
    ) -> Iterator[Iterator[list[Any]]]:
        """The rows of the named statement in pages of `size`, as the server sends them. Within the
        block no other statement can run on this session.
        """
        with self._sent(name, values) as sent:
            sent.is_reusable = False
            yield iter(lambda: self._fetch_page(sent.cursor, size), [])

    def _fetch_page(self, cursor: "pyodbc.Cursor", size: int) -> list[Any]:
        self._watch.restart_timer()
        try:
            return list(cursor.fetchmany(size))
        finally:
            # Until the next page is asked for, nobody waits for the server.
            self._watch.restart_timer(math.inf)

    def execute_many(self, name: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Run the named statement once for each of these sets of values, all of the same names."""
        if not rows:
            return
        text, order = text_of(name, tuple(sorted(rows[0])))
        values = [adapted(row) for row in rows]
        with self._prepared(
            text.format(**self._names), describe_statement(name, self._names)
        ) as prepared:
            prepared.cursor.executemany(
                prepared.text, [[row[value] for value in order] for row in values]
            )
            drain(prepared.cursor)

    def error_number(self, name: str) -> int | None:
        """The number of the error that the named statement, which changes nothing, meets."""
        try:
            with self.transaction():
                self.execute(name)
        except StoreError as error:
            return number_of(error.__cause__) if isinstance(error.__cause__, odbc().Error) else None
        return None

    @contextmanager
    def _sent(self, name: str, values: Mapping[str, object]) -> Iterator[Prepared]:
        """The cursor on which the named statement was sent."""
        text, parameters = bind(name, self._names, adapted(values))
        with self._prepared(text, describe_statement(name, self._names)) as prepared:
            send(self._session, prepared, parameters)
            yield prepared


def send(session: RawSession, prepared: Prepared, parameters: Sequence[object]) -> None:
    """Execute a statement with its parameters."""
    # FreeTDS declares long ones as they have to be, and refuses to be told.
    if session.sends_arrays:
        prepared.cursor.setinputsizes([_size(value) for value in parameters])
    prepared.cursor.execute(prepared.text, parameters)


def _size(value: object) -> tuple[int, int, int] | None:
    """How a parameter is declared; None: as ODBC would. A long one would go out as `ntext` or
    `image`, which hardly any function takes.
    """
    if isinstance(value, str) and len(value) > _LONG_TEXT:
        return TEXT
    return BYTES if isinstance(value, bytes) and len(value) > _LONG_BYTES else None
