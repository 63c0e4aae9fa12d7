"""An endpoint in a database of its own, as its administrator sees it."""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import namedtuple_row
from recordings import QueueRow

from duesweep import config as configuration
from duesweep import wiring
from duesweep.config import Config
from duesweep.core.address import PostgreSqlAddresses, TableName, quote_name
from duesweep.sql import statement
from duesweep.stores.postgresql.location import journal_tables
from duesweep.testing.builders import BODY, ENDPOINT, DelayedRow, delayed_row

# As NServiceBus stores it, evaluated in the writer's session: the server's default time zone.
_DUE_IN = "SELECT timestamptz(now() AT TIME ZONE 'UTC') + make_interval(secs => $1)"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Its tables are there after `set_up`; `folder` takes its configuration file and its ledger."""

    dsn: str
    folder: Path
    admin: psycopg.Connection[Any]
    name: str = ENDPOINT
    schema: str = "public"
    delayed_table: str | None = None

    @property
    def delayed(self) -> TableName:
        """Its delayed table."""
        return TableName(self.schema, self.delayed_table or f"{self.name}.Delayed")

    @property
    def addresses(self) -> PostgreSqlAddresses:
        """How it reads addresses."""
        return PostgreSqlAddresses(self.name, self.schema)

    def named(self, name: str, schema: str = "public", delayed: str | None = None) -> "Endpoint":
        """Another endpoint in the same database."""
        return replace(self, name=name, schema=schema, delayed_table=delayed)

    def config_file(self, **overrides: object) -> Path:
        """Its configuration as a file; overrides as in `retry__max_attempts=2`."""
        values: dict[str, object] = {
            "store__dsn": self.dsn,
            "store__endpoint": self.name,
            "store__schema": self.schema,
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

    def set_up(self, *queues: str, **overrides: object) -> "Endpoint":
        """Create its tables, as `duesweep setup` does, and queue tables of these addresses."""
        config = self.config(**overrides)
        self._create_schema(self.schema)
        wiring.installer(config).install(rebind=False)
        for queue in queues:
            self.create_queue(queue)
        return self

    def create_queue(self, address: str) -> TableName:
        """Create the queue table that `address` names, and its schema."""
        table = self.addresses.parse(address)
        self._create_schema(table.schema)
        self.execute(statement("postgresql", "create_queue").format(queue=table))
        return table

    def delay(
        self,
        destination: str | None = "Billing",
        *,
        due_in_seconds: float = -60,
        body: bytes | None = BODY,
        headers: str | None = None,
    ) -> str:
        """Store one message. Returns its key. `headers` is the text of the column, unchecked."""
        row = delayed_row(destination, body=body, due=self.due_in(due_in_seconds))
        self.load([replace(row, headers=headers) if headers is not None else row])
        return row.key

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
        self.load(rows)
        return [row.key for row in rows]

    def load(self, rows: Iterable[DelayedRow]) -> None:
        """Store these rows as they are."""
        text = f"COPY {self.delayed} (id, headers, body, due) FROM STDIN".encode()
        with self.admin.cursor() as cursor, cursor.copy(text) as copy:
            for row in rows:
                copy.write_row((row.key, row.headers, row.body, row.due))

    def due_in(self, seconds: float) -> datetime:
        """The Due that NServiceBus would store for a message that comes due in `seconds`."""
        due: datetime = self.fetch(_DUE_IN, seconds)[0][0]
        return due

    def waiting(self) -> list[str]:
        """The keys in the delayed table, sorted."""
        return [row[0] for row in self.fetch(f"SELECT id::text FROM {self.delayed} ORDER BY 1")]

    def waiting_rows(self) -> list[QueueRow]:
        """What lies in the delayed table."""
        rows = self.fetch(f"SELECT headers, body FROM {self.delayed} ORDER BY due")
        return [QueueRow(*row) for row in rows]

    def queue_rows(self, address: str) -> list[QueueRow]:
        """What lies in a queue, in the order of its arrival."""
        table = self.addresses.parse(address)
        rows = self.fetch(f"SELECT headers, body, expires FROM {table} ORDER BY seq")
        return [QueueRow(*row) for row in rows]

    def attempts(self) -> dict[str, Any]:
        """The rows of the retry counters, by key."""
        rows = self.fetch(
            "SELECT message_key::text AS key, message_id, destination, attempts, first_failed_at,"
            " last_failed_at, next_attempt_at, error_class, error_text"
            f" FROM {self.own_table('attempts')}"
        )
        return {row.key: row for row in rows}

    def end_back_off(self) -> None:
        """End all back-offs."""
        attempts = self.own_table("attempts")
        self.execute(f"UPDATE {attempts} SET next_attempt_at = now() - interval '1 second'")

    def role(self, suffix: str, *grants: str) -> str:
        """Create a role that may log in, granted for example `SELECT ON ALL TABLES IN SCHEMA
        public`; its dsn.
        """
        name = f"{self.admin.info.dbname}_{suffix}"
        self.execute(f"CREATE ROLE {quote_name(name)} LOGIN")
        for grant in grants:
            self.execute(f"GRANT {grant} TO {quote_name(name)}")
        return make_conninfo(self.dsn, user=name)

    def fetch(self, text: str, *values: object) -> list[Any]:
        """The rows of a query, as named tuples; values take the places of $1 …"""
        # Raw: a percent sign in a name is not a placeholder.
        with psycopg.RawCursor(self.admin, row_factory=namedtuple_row) as cursor:
            return cursor.execute(text.encode(), values or None).fetchall()

    def execute(self, text: str, *values: object) -> None:
        """Run a statement, committed at once; values take the places of $1 …"""
        with psycopg.RawCursor(self.admin) as cursor:
            cursor.execute(text.encode(), values or None)

    def kill_sessions(self) -> None:
        """End all sessions that duesweep has in this database."""
        self.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'duesweep%' AND datname = current_database()"
        )

    def own_table(self, name: str) -> TableName:
        """One of duesweep's own tables: `journal`, `attempts`, `sweeps`, `bindings`."""
        return journal_tables(self.schema)[name]

    def _create_schema(self, schema: str) -> None:
        with suppress(psycopg.errors.DuplicateSchema):
            self.execute(f"CREATE SCHEMA {quote_name(schema)}")
