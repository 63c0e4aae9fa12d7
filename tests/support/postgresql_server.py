"""A PostgreSQL database for the tests, as its administrator sees it."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import namedtuple_row

from duesweep import Duesweep
from duesweep.config import Config
from duesweep.config.adapters.roles import setup_steps
from duesweep.core.address import PostgreSqlAddresses, TableName, quote_name
from duesweep.drivers.statements import statement
from duesweep_testing.builders import DelayedRow
from duesweep_testing.contract import Abilities
from support.endpoint import Endpoint
from support.postgresql_rows import KINDS
from support.recordings import QueueRow
from support.waiting import until


@dataclass(frozen=True, slots=True)
class PostgreSqlServer:
    """A database: `dsn` and `admin` are its administrator's.

    SQL Server's has the same methods. `kinds` are how delayed tables keep messages, `settings`
    in the configuration. `past` is the expression for a moment ago, `counter_key` the one for
    the key of a retry counter as text. `unreached` is the dsn of a database `nothing` on a port
    without a listener, `absent_key` a message key that is never given out.
    """

    kinds: ClassVar[Mapping[str, Any]] = KINDS
    settings: ClassVar[Mapping[str, object]] = {}
    past: ClassVar[str] = "now() - interval '1 second'"
    counter_key: ClassVar[str] = "message_key::text"
    unreached: ClassVar[str] = "postgresql://postgres@127.0.0.1:1/nothing"
    absent_key: ClassVar[str] = str(UUID(int=0))

    dsn: str
    admin: psycopg.Connection[Any]

    @property
    def abilities(self) -> Abilities:
        return Abilities()

    def store_again(self, endpoint: Endpoint[Any], row: DelayedRow) -> None:
        endpoint.load([row])

    def addresses(self, endpoint: str, schema: str) -> PostgreSqlAddresses:
        return PostgreSqlAddresses(endpoint, schema)

    def sql(self, schema: str, table: str) -> str:
        return str(TableName(schema, table))

    def sql_within(self, schema: str, table: str) -> str:
        return self.sql(schema, table)

    @contextmanager
    def user(self, suffix: str) -> Iterator[tuple[str, str]]:
        dsn = self.role(suffix)
        yield dsn, quote_name(str(conninfo_to_dict(dsn)["user"]))

    def quoted(self, table: TableName) -> str:
        return str(table)

    def fetch(self, text: str, *values: object) -> list[Any]:
        """The rows of a query, as named tuples; values take the places of $1 …"""
        # Raw, because a percent sign in a name is no placeholder.
        with psycopg.RawCursor(self.admin, row_factory=namedtuple_row) as cursor:
            return cursor.execute(text.encode(), values or None).fetchall()

    def execute(self, text: str, *values: object) -> None:
        """Run a statement, committed at once; values take the places of $1 …"""
        with psycopg.RawCursor(self.admin) as cursor:
            cursor.execute(text.encode(), values or None)

    def set_up(self, config: Config) -> None:
        """As `duesweep setup`, but by its printed script if that is for this database alone: the
        command asks for each table first, which takes three times as long.
        """
        steps = setup_steps(config)
        if len(steps) == 1 and config.store.dsn.get_secret_value() == self.dsn:
            self.execute(f"{steps[0].script()}\nRESET ALL")
        else:
            Duesweep(config).setup()

    def create_schema(self, schema: str) -> None:
        with suppress(psycopg.errors.DuplicateSchema):
            self.execute(f"CREATE SCHEMA {quote_name(schema)}")

    def create_queue(self, table: TableName) -> None:
        self.create_schema(table.schema)
        self.execute(statement("postgresql", "create_queue").format(queue=table))

    def queue_rows(self, table: TableName) -> list[QueueRow]:
        rows = self.fetch(f"SELECT headers, body, expires FROM {table} ORDER BY seq")
        return [QueueRow(*row) for row in rows]

    def time(self) -> datetime:
        time: datetime = self.fetch("SELECT now()")[0][0]
        return time

    def claim_keys(self, rows: Iterable[DelayedRow]) -> list[str]:
        return [row.key for row in rows]

    def journal(self, table: str, sweep_id: object) -> list[Any]:
        return self.fetch(
            "SELECT *, (extract(epoch FROM due) * 1000000)::bigint AS due_us,"
            " (extract(epoch FROM dispatched_at) * 1000000)::bigint AS dispatched_us"
            f" FROM {table} WHERE sweep_id = $1 ORDER BY id",
            sweep_id,
        )

    def entry_values(self, row: Any) -> dict[str, Any]:
        values: dict[str, Any] = row._asdict()
        lateness_ms, key = tuple(row.lateness_ms or ()), str(row.message_key)
        return values | {"lateness_ms": lateness_ms, "message_key": key}

    def refusal(self, body: bytes) -> str:
        return f"body <> '{body.decode()}'"

    @contextmanager
    def locked(self, table: TableName) -> Iterator[None]:
        with psycopg.connect(self.dsn) as connection:
            connection.execute(f"LOCK TABLE {table} IN SHARE MODE".encode())
            yield

    def role(self, suffix: str, *grants: str) -> str:
        """Create a role that may log in, granted for example `SELECT ON ALL TABLES IN SCHEMA
        public`; its dsn.
        """
        name = f"{self.admin.info.dbname}_{suffix}"
        self.execute(f"CREATE ROLE {quote_name(name)} LOGIN")
        for grant in grants:
            self.execute(f"GRANT {grant} TO {quote_name(name)}")
        return make_conninfo(self.dsn, user=name)

    def add_trigger(self, when: str, table: str, body: str, each: str = "ROW") -> None:
        """Add a trigger `acts`. `when` is as `BEFORE INSERT`, `body` has PL/pgSQL's statements."""
        self.execute(
            "CREATE FUNCTION act() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS"
            f" $$BEGIN {body} END$$"
        )
        self.execute(
            f"CREATE TRIGGER acts {when} ON {table} FOR EACH {each} EXECUTE FUNCTION act()"
        )

    def sessions(self) -> int:
        """How many sessions duesweep has in the database."""
        [row] = self.fetch(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE 'duesweep,%'"
        )
        return int(row[0])

    def kill_sessions(self) -> None:
        """End all sessions that duesweep has in this database."""
        self.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'duesweep%' AND datname = current_database()"
        )


PostgreSqlEndpoint = Endpoint[PostgreSqlServer]


def create_database(admin: psycopg.Connection[Any], name: str, options: str = "") -> None:
    """Copy the template's files: to log each of their pages takes twice the time."""
    admin.execute(f"CREATE DATABASE {name} STRATEGY FILE_COPY {options}".encode())


def drop_database(admin: psycopg.Connection[Any], name: str) -> None:
    """End the sessions first, for the server looks only each 100 ms whether they have ended."""
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
    until(lambda: not admin.execute(end, [name]).fetchall())
    admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def endpoint_in_postgresql(
    dsn: str, folder: Path, admin: psycopg.Connection[Any], schema: str = "public"
) -> PostgreSqlEndpoint:
    return Endpoint(PostgreSqlServer(dsn, admin), folder, schema, "postgresql")
