"""Named statements on one session of PostgreSQL."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from psycopg import sql
from psycopg.rows import namedtuple_row

from duesweep.core.address import TableName
from duesweep.drivers.postgresql.bounded import BoundedConnection
from duesweep.drivers.postgresql.errors import map_errors, unusual_errors
from duesweep.drivers.postgresql.grants import grant_of
from duesweep.sql import statement

# Tables, or SQL that stands for a name.
Names = Mapping[str, TableName | str]


class PostgreSqlStatements:
    """See `Statements`. `names` are what the statements have in braces."""

    def __init__(self, raw: BoundedConnection, names: Names) -> None:
        self._raw = raw
        self._names = names

    def named(self, names: Names) -> "PostgreSqlStatements":
        """The statements of the same session with these names."""
        return PostgreSqlStatements(self._raw, names)

    def execute(self, name: str, /, **values: object) -> int:
        """Run the named statement; returns the number of rows that it touched."""
        with self._errors_of(name):
            return self._raw.execute(_sent(name, self._names), values, binary=True).rowcount

    def rows(self, name: str, /, **values: object) -> list[Any]:
        """The rows that the named statement returns, as named tuples."""
        with (
            self._errors_of(name),
            self._raw.cursor(row_factory=namedtuple_row, binary=True) as cursor,
        ):
            return cursor.execute(_sent(name, self._names), values).fetchall()

    def rows_of_each(self, what: str, *named: tuple[str, Mapping[str, object]]) -> list[list[Any]]:
        """The rows of several named statements, each with its values, in one round trip. They run
        in this order; after one that fails, none does. `what` is the one that errors name. Raises
        `UnusualBatchError` where the server refuses one, and is itself well.
        """
        with self._errors_of(what), unusual_errors(), ExitStack() as stack:
            cursors = [
                stack.enter_context(self._raw.cursor(row_factory=namedtuple_row, binary=True))
                for _ in named
            ]
            with self._raw.pipeline():
                for cursor, (name, values) in zip(cursors, named, strict=True):
                    cursor.execute(_sent(name, self._names), values)
            return [cursor.fetchall() if cursor.description else [] for cursor in cursors]

    @contextmanager
    def pages(
        self, name: str, size: int, values: Mapping[str, object]
    ) -> Iterator[Iterator[list[Any]]]:
        """The rows of the named statement in pages of `size`, by a cursor of the server: it goes on
        where the last page ended. Needs a transaction; within the block other statements can run.
        """
        with (
            self._errors_of(name),
            self._raw.cursor(f"duesweep_{name}", row_factory=namedtuple_row) as cursor,
        ):
            cursor.execute(_sent(name, self._names), values, binary=True)
            yield iter(lambda: cursor.fetchmany(size), [])

    def row(self, name: str, /, **values: object) -> Any:
        """The only row that the named statement returns."""
        (row,) = self.rows(name, **values)
        return row

    def query(self, name: str, /, **literals: str) -> str:
        """The text of a statement for JDBC, with `literals` quoted in it."""
        quoted = {key: literal(value) for key, value in literals.items()}
        return text_of(name, {**self._names, **quoted})

    def _errors_of(self, name: str) -> AbstractContextManager[None]:
        """Maps the errors of the named statement."""
        return map_errors(
            _describe_statement(name, self._names),
            lambda refusal: grant_of(refusal, self._raw.info.user, name, self._names),
        )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction, or within one a savepoint; committed at the end of the block."""
        with map_errors(), self._raw.transaction():
            yield


def text_of(name: str, names: Names) -> str:
    """The text of a statement that takes no values."""
    return statement("postgresql", name).format(**names)


def literal(value: str) -> str:
    """`value` as an SQL literal, for the queries that Spark runs over JDBC."""
    return sql.Literal(value).as_string(None)


def _describe_statement(name: str, names: Names) -> str:
    """The named statement and what it is about, for people."""
    text = statement("postgresql", name)
    named = [str(each) for key, each in names.items() if f"{{{key}}}" in text]
    # Others are columns, or SQL.
    tables = [each for each in named if each.startswith('"') and '"."' in each]
    return f"{name} on {', '.join(tables)}" if tables else name


def _sent(name: str, names: Names) -> bytes:
    # psycopg reads % as a placeholder wherever it stands, in a quoted name too.
    escaped = {key: str(each).replace("%", "%%") for key, each in names.items()}
    return text_of(name, escaped).encode()
