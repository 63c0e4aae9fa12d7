"""A real SQL Server for the tests, with databases of their own."""

import os
import uuid
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from duesweep import Duesweep
from duesweep.config import Config
from duesweep.config.adapters.roles import setup_steps
from duesweep.core.address import SqlServerAddresses, SqlServerTable, bracket_name
from duesweep.drivers.sqlserver.dsn import OdbcDsn
from duesweep_testing.builders import DelayedRow
from duesweep_testing.contract import Abilities
from support.endpoint import Endpoint
from support.recordings import QueueRow
from support.sqlserver_database import (
    SqlServerDatabase,
    closing,
    connect,
    new_database,
    when_unused,
)
from support.sqlserver_rows import AS_DUE, KINDS, due_of, due_text, shown

if TYPE_CHECKING:
    import pyodbc

# Options of the databases that tests create.
OPTIONS_VARIABLE = "DUESWEEP_TEST_SQLSERVER_OPTIONS"
_QUEUE = """
    CREATE TABLE {queue} (
        Id uniqueidentifier NOT NULL, CorrelationId varchar(255), ReplyToAddress varchar(255),
        Recoverable bit NOT NULL, Expires datetime, Headers nvarchar(max) NOT NULL,
        Body varbinary(max), RowVersion bigint IDENTITY(1,1) NOT NULL
    );
    CREATE INDEX Index_RowVersion ON {queue} (RowVersion);
    CREATE INDEX Index_Expires ON {queue} (Expires)
"""


@dataclass(frozen=True, slots=True)
class SqlServer:
    """A server, and on it two databases of the tests' own."""

    kinds: ClassVar[Mapping[str, Any]] = KINDS
    settings: ClassVar[Mapping[str, object]] = {"queues__default__kind": "sqlserver"}
    past: ClassVar[str] = "DATEADD(second, -1, SYSUTCDATETIME())"
    counter_key: ClassVar[str] = "message_key"
    unreached: ClassVar[str] = "Server=127.0.0.1,1;Database=nothing;Uid=x;Pwd=x;Encrypt=no"
    absent_key: ClassVar[str] = "0"

    database: SqlServerDatabase
    other: SqlServerDatabase
    stand_in: str | None

    @property
    def dsn(self) -> str:
        return self.database.dsn

    @property
    def abilities(self) -> Abilities:
        return Abilities(
            # More than the 1/300 s of `datetime`, so that both neighbours differ.
            tick=timedelta(milliseconds=4),
            first_due=datetime(1753, 1, 1, tzinfo=UTC),
            has_infinite_due=False,
            skips_locked=self.stand_in is None,
            stand_in=self.stand_in,
        )

    def addresses(self, endpoint: str, schema: str) -> SqlServerAddresses:
        return SqlServerAddresses(endpoint, schema, self.database.name)

    def sql(self, schema: str, table: str) -> str:
        return SqlServerTable(self.database.name, schema, table).sql

    def sql_within(self, schema: str, table: str) -> str:
        return f"{bracket_name(schema)}.{bracket_name(table)}"

    @contextmanager
    def user(self, suffix: str) -> Iterator[tuple[str, str]]:
        name, password = f"{suffix}_{uuid.uuid4().hex[:12]}", f"Throw-away-{uuid.uuid4().hex}"
        quoted = bracket_name(name)
        self.execute(f"CREATE LOGIN {quoted} WITH PASSWORD = '{password}'")
        try:
            self.execute(f"CREATE USER {quoted} FOR LOGIN {quoted}")
            pairs = OdbcDsn.parse(self.dsn).pairs
            yield OdbcDsn(pairs | {"uid": name, "pwd": password}).text(), quoted
        finally:
            # A stand-in drops no user that has been granted something.
            self.database.drop_tables()
            self.execute(f"DROP USER IF EXISTS {quoted}")
            when_unused(lambda: self.execute(f"DROP LOGIN {quoted}"))

    def quoted(self, table: SqlServerTable) -> str:
        return table.sql

    def fetch(self, text: str, *values: object) -> list[Any]:
        """The rows of a query, with their columns as attributes; values take the places of `?`."""
        return self.database.fetch(text, *values)

    def execute(self, text: str, *values: object) -> int:
        """Run a statement, committed at once; values take the places of `?`."""
        return self.database.execute(text, *values)

    def set_up(self, config: Config) -> None:
        """As `duesweep setup`, but by its printed script if that is for this database alone: the
        command asks for each table first, which takes a stand-in ten times as long.
        """
        steps = setup_steps(config)
        if len(steps) > 1 or config.store.dsn.get_secret_value() != self.dsn:
            Duesweep(config).setup()
            return
        for batch in f"\n{steps[0].script()}\n".split("\nGO\n"):
            self.execute(batch)

    def store_again(self, endpoint: "SqlServerEndpoint", row: DelayedRow) -> None:
        """Store a row with its key, which the server has given out before."""
        table = endpoint.delayed
        self.execute(f"DBCC CHECKIDENT ('{table}', RESEED, {int(row.key) - 1})")
        insert = f"INSERT INTO {table} (Headers, Body, Due) VALUES (?, ?, {AS_DUE})"
        self.execute(insert, row.headers, row.body, due_text(row.due))

    def create_schema(self, schema: str) -> None:
        self.database.create_schema(schema)

    def create_queue(self, table: SqlServerTable) -> None:
        database = self._database_of(table)
        database.create_schema(table.schema)
        if not database.fetch("SELECT 1 WHERE OBJECT_ID(?, 'U') IS NOT NULL", table.sql):
            database.execute(_QUEUE.format(queue=table.sql))

    def queue_rows(self, table: SqlServerTable) -> list[QueueRow]:
        rows = self._database_of(table).fetch(
            f"SELECT Headers, Body, Expires FROM {table.sql} ORDER BY RowVersion"
        )
        return [QueueRow(row.Headers, row.Body, row.Expires) for row in rows]

    def time(self) -> datetime:
        (row,) = self.fetch(f"SELECT {shown('GETUTCDATE()')} AS now")
        return due_of(row.now)

    def claim_keys(self, rows: Iterable[DelayedRow]) -> list[str]:
        # The server's own text of a Due: all its digits, or as many as a stand-in has.
        dues = [due_text(row.due) for row in rows]
        text = f"SELECT {shown(AS_DUE)} AS claim_key"
        claim_keys = {due: self.fetch(text, due)[0].claim_key for due in dict.fromkeys(dues)}
        return [claim_keys[due] for due in dues]

    def journal(self, table: str, sweep_id: object) -> list[Any]:
        return self.fetch(f"SELECT * FROM {table} WHERE sweep_id = ? ORDER BY id", str(sweep_id))

    def entry_values(self, row: Any) -> dict[str, Any]:
        values = dict(zip([column[0] for column in row.cursor_description], row, strict=True))
        late_ms = array("q")
        late_ms.frombytes(row.lateness_ms or b"")
        return values | {
            "lateness_ms": tuple(late_ms),
            "attempts_changed": bool(row.attempts_changed),
            "headers": row.headers_text,
        }

    def refusal(self, body: bytes) -> str:
        return f"Body <> 0x{body.hex()}"

    @contextmanager
    def locked(self, table: SqlServerTable) -> Iterator[None]:
        lock = f"SELECT COUNT(*) FROM {table.sql} WITH (TABLOCKX, HOLDLOCK)"
        if self.stand_in is not None:
            # The hint locks nothing there.
            lock = f"ALTER TABLE {table.sql} ADD locked int NULL"
        with self.database.transaction() as connection:
            connection.execute(lock)
            yield

    def swapped(self) -> "SqlServer":
        """The same with the databases in each other's place."""
        return replace(self, database=self.other, other=self.database)

    def unsupported(self, what: str) -> str:
        """Why a test is skipped here that the real server passes."""
        return f"{self.stand_in} stands in for SQL Server, and {what}"

    def _database_of(self, table: SqlServerTable) -> SqlServerDatabase:
        databases = {each.name: each for each in (self.database, self.other)}
        return databases[table.catalog]


SqlServerEndpoint = Endpoint[SqlServer]


def endpoint_in_sqlserver(server: SqlServer, folder: Path, schema: str) -> SqlServerEndpoint:
    """Endpoint Sales.Orders of the SQL Server transport, without tables as yet."""
    return Endpoint(server, folder, schema, "sqlserver")


@contextmanager
def sql_server(dsn: str, options: Sequence[str] | None = None) -> Iterator[SqlServer]:
    """The server that `dsn` names; its login must be one that may create databases. They get these
    options (`new_database`), by default the ones of the environment, with semicolons between them.
    """
    name = f"duesweep_test_{uuid.uuid4().hex[:8]}"
    if options is None:
        given = os.environ.get(OPTIONS_VARIABLE, "").split(";")
        options = [one.strip() for one in given if one.strip()]
    with closing(connect(dsn)) as master:
        stand_in = stand_in_of(master)
        with (
            new_database(dsn, master, name, stand_in, options) as database,
            # A name that has to be quoted wherever it is written.
            new_database(dsn, master, f"{name} 'other' catalog", stand_in, options) as other,
        ):
            yield SqlServer(database, other, stand_in)


def stand_in_of(master: "pyodbc.Connection") -> str | None:
    """The name and version of a server that stands in for SQL Server; None: it is SQL Server."""
    (found,) = master.execute("SELECT CAST(SERVERPROPERTY('babelfish') AS int)").fetchone()
    if not found:
        return None
    (version,) = master.execute("SELECT @@VERSION").fetchone()
    return "Babelfish" + version.rpartition("Babelfish")[2].rstrip(") ")
