"""An endpoint whose delayed messages wait in SQL Server, as its administrator sees it."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from recordings import QueueRow
from sqlserver_rows import MsmqRows, StoredRows, TimeoutRows, TransportRows, due_of, shown
from sqlserver_server import SqlServer, SqlServerDatabase

from duesweep import config as configuration
from duesweep import wiring
from duesweep.config import Config
from duesweep.core.address import SqlServerAddresses, SqlServerTable, bracket_name
from duesweep.testing.builders import BODY, ENDPOINT, DelayedRow, delayed_row

_QUEUE = """
    CREATE TABLE {queue} (
        Id uniqueidentifier NOT NULL, CorrelationId varchar(255), ReplyToAddress varchar(255),
        Recoverable bit NOT NULL, Expires datetime, Headers nvarchar(max) NOT NULL,
        Body varbinary(max), RowVersion bigint IDENTITY(1,1) NOT NULL
    )
"""
Kind = Literal["sqlserver", "msmq", "sql-persistence"]
_ROWS: dict[Kind, StoredRows] = {
    "sqlserver": TransportRows(),
    "msmq": MsmqRows(),
    "sql-persistence": TimeoutRows(),
}


@dataclass(frozen=True, slots=True)
class SqlServerEndpoint:
    """Its tables are there after `set_up`; `folder` takes its configuration file and its ledger.

    With another `kind` its delayed messages wait in the MSMQ transport's table or in that of SQL
    persistence's timeouts.
    """

    server: SqlServer
    folder: Path
    schema: str
    kind: Kind = "sqlserver"
    name: str = ENDPOINT
    delayed_table: str | None = None

    @property
    def database(self) -> SqlServerDatabase:
        """Where its tables are."""
        return self.server.database

    @property
    def rows(self) -> StoredRows:
        """How its kind keeps messages."""
        return _ROWS[self.kind]

    @property
    def delayed(self) -> str:
        """Its delayed table, quoted."""
        table = self.delayed_table or self.rows.table(self.name)
        return SqlServerTable(self.database.name, self.schema, table).sql

    @property
    def addresses(self) -> SqlServerAddresses:
        """How it reads addresses."""
        return SqlServerAddresses(self.name, self.schema, self.database.name)

    def of_kind(self, kind: Kind) -> "SqlServerEndpoint":
        """The same with another transport's delayed table."""
        return replace(self, kind=kind)

    def named(self, name: str, delayed_table: str | None = None) -> "SqlServerEndpoint":
        """Another endpoint in the same schema."""
        return replace(self, name=name, delayed_table=delayed_table)

    def config_file(self, **overrides: object) -> Path:
        """Its configuration as a file; overrides as in `retry__max_attempts=2`."""
        values: dict[str, object] = {
            "store__kind": self.kind,
            "store__dsn": self.database.dsn,
            "store__endpoint": self.name,
            "store__schema": self.schema,
            "queues__default__kind": "sqlserver",
            "ledger__root": str(self.folder / "ledger"),
        }
        if self.delayed_table is not None:
            values["store__delayed_table"] = self.delayed_table
        # In TOML a dotted key is the same setting as a key in a section.
        lines = [
            f"{name.replace('__', '.')} = {json.dumps(value, ensure_ascii=False)}\n"
            for name, value in (values | overrides).items()
        ]
        file = self.folder / "duesweep.toml"
        file.write_text("".join(lines), encoding="utf-8")
        return file

    def config(self, **overrides: object) -> Config:
        """Its configuration; overrides as in `retry__max_attempts=2`."""
        return configuration.load(self.config_file(**overrides))

    def set_up(self, *queues: str, **overrides: object) -> "SqlServerEndpoint":
        """Create its tables, as `duesweep setup` does, and queue tables of these addresses."""
        self._create_schema(self.database, self.schema)
        if self.rows.create is not None:
            self.execute(self.rows.create.format(table=self.delayed))
        wiring.installer(self.config(**overrides)).install(rebind=False)
        for queue in queues:
            self.create_queue(queue)
        return self

    def create_queue(self, address: str) -> SqlServerTable:
        """Create the queue table that `address` names, and its schema."""
        table = self.addresses.parse(address)
        database = self._database_of(table)
        self._create_schema(database, table.schema)
        if not database.fetch("SELECT 1 WHERE OBJECT_ID(?, 'U') IS NOT NULL", table.sql):
            database.execute(_QUEUE.format(queue=table.sql))
        return table

    def delay(
        self,
        destination: str | None = "Billing",
        *,
        due_in_seconds: float = -60,
        body: bytes | None = BODY,
        headers: str | None = None,
    ) -> str:
        """Store one message. Returns its key. `headers` is the value of the column, unchecked."""
        row = delayed_row(destination, body=body, due=self.due_in(due_in_seconds))
        (stored,) = self.load([replace(row, headers=headers) if headers is not None else row])
        return stored.key

    def delay_many(
        self,
        count: int,
        destinations: Sequence[str | None] = ("Billing",),
        *,
        due_in_seconds: float = -60,
    ) -> list[str]:
        """Store `count` messages with one Due to `destinations` in turn; their keys."""
        due = self.due_in(due_in_seconds)
        rows = [delayed_row(destinations[i % len(destinations)], due=due) for i in range(count)]
        return [row.key for row in self.load(rows)]

    def load(self, rows: Iterable[DelayedRow]) -> list[DelayedRow]:
        """Store these rows. Returns them with the keys and Dues that they have in the store."""
        return self.rows.insert(self.database, self.delayed, list(rows))

    def due_in(self, seconds: float) -> datetime:
        """The Due that NServiceBus would store for a message that comes due in `seconds`."""
        (row,) = self.fetch(f"SELECT {shown('GETUTCDATE()')} AS now")
        return due_of(row.now) + timedelta(seconds=seconds)

    def waiting(self) -> list[str]:
        """The keys in the delayed table, sorted."""
        rows = self.fetch(f"SELECT {self.rows.key_text} AS message_key FROM {self.delayed}")
        return sorted(str(row.message_key) for row in rows)

    def queue_rows(self, address: str) -> list[QueueRow]:
        """What lies in a queue, in the order of its arrival."""
        table = self.addresses.parse(address)
        rows = self._database_of(table).fetch(
            f"SELECT Headers, Body, Expires FROM {table.sql} ORDER BY RowVersion"
        )
        return [QueueRow(row.Headers, row.Body, row.Expires) for row in rows]

    def attempts(self) -> dict[str, Any]:
        """The rows of the retry counters, by key."""
        rows = self.fetch(
            "SELECT message_key, message_id, destination, attempts, first_failed_at,"
            " last_failed_at, next_attempt_at, error_class, error_text"
            f" FROM {self.own_table('attempts')}"
        )
        return {row.message_key: row for row in rows}

    def journal(self, sweep_id: object) -> list[Any]:
        """The rows of a sweep's journal, in order."""
        text = f"SELECT * FROM {self.own_table('journal')} WHERE sweep_id = ? ORDER BY id"
        return self.fetch(text, str(sweep_id))

    def end_back_off(self) -> None:
        """End all back-offs."""
        attempts = self.own_table("attempts")
        self.execute(
            f"UPDATE {attempts} SET next_attempt_at = DATEADD(second, -1, SYSUTCDATETIME())"
        )

    def fetch(self, text: str, *values: object) -> list[Any]:
        """The rows of a query, with their columns as attributes; values take the places of `?`."""
        return self.database.fetch(text, *values)

    def execute(self, text: str, *values: object) -> int:
        """Run a statement, committed at once; values take the places of `?`."""
        return self.database.execute(text, *values)

    def own_table(self, name: str) -> str:
        """One of duesweep's own tables, quoted: `journal`, `attempts`, `sweeps`, `bindings`."""
        return SqlServerTable(self.database.name, self.schema, f"duesweep_{name}").sql

    def _database_of(self, table: SqlServerTable) -> SqlServerDatabase:
        databases = {d.name: d for d in (self.server.database, self.server.other)}
        return databases[table.catalog]

    def _create_schema(self, database: SqlServerDatabase, schema: str) -> None:
        if not database.fetch("SELECT 1 FROM sys.schemas WHERE name = ?", schema):
            database.execute(f"CREATE SCHEMA {bracket_name(schema)}")
