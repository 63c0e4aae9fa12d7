"""An endpoint whose delayed messages wait in a database, as its administrator sees it."""

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pytest

from duesweep import config as configuration
from duesweep.config import Config
from duesweep.config.adapters.context import sweep_context
from duesweep.core.address import quote_name
from duesweep.sweep.job import SweepContext
from duesweep_testing.builders import BODY, ENDPOINT, DelayedRow, delayed_row
from support import commands
from support.commands import Ran
from support.recordings import QueueRow

if TYPE_CHECKING:
    from support.ledger_reader import LedgerReader

S = TypeVar("S")

# The fixture `endpoint` is of the PostgreSQL transport, and of the SQL Server transport if a
# server is there.
ON_BOTH_SERVERS = pytest.mark.parametrize("endpoint", ["postgresql", "sqlserver"], indirect=True)


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[S]):
    """Its tables are there after `set_up`; `folder` takes its configuration file and its ledger.
    `kind` is the setting store.kind, `settings` are others that its configuration has.
    """

    server: S
    folder: Path
    schema: str
    kind: str
    name: str = ENDPOINT
    delayed_table: str | None = None
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def dsn(self) -> str:
        """Its database, with the administrator's rights."""
        return self.server.dsn

    @property
    def rows(self) -> Any:
        return self.server.kinds[self.kind]

    @property
    def delayed(self) -> str:
        return self.table(self._delayed_name)

    def table(self, name: str) -> str:
        return self.server.sql(self.schema, name)

    def within(self, name: str) -> str:
        """The same without the database, as GRANT and DROP INDEX take it."""
        return self.server.sql_within(self.schema, name)

    @property
    def addresses(self) -> Any:
        return self.server.addresses(self.name, self.schema)

    def of_kind(self, kind: str) -> "Endpoint[S]":
        """The same with another kind of delayed table."""
        return replace(self, kind=kind)

    def named(
        self, name: str, schema: str | None = None, delayed: str | None = None
    ) -> "Endpoint[S]":
        """Another endpoint in the same database, and in the same schema unless one is given."""
        return replace(self, name=name, schema=schema or self.schema, delayed_table=delayed)

    def having(self, **settings: object) -> "Endpoint[S]":
        return replace(self, settings={**self.settings, **settings})

    def config_file(self, **overrides: object) -> Path:
        """Its configuration as a file; overrides as in `retry__max_attempts=2`."""
        values = {"store__endpoint": self.name, **self._shared_settings}
        if self.delayed_table is not None:
            values["store__delayed_table"] = self.delayed_table
        file = self.folder / "duesweep.toml"
        # At once: another thread of a test may just read it.
        new = file.with_suffix(f".{threading.get_ident()}")
        new.write_text(_toml(values | {**self.settings} | overrides), encoding="utf-8")
        return new.replace(file)

    def fleet_file(self, *entries: str, **overrides: object) -> Path:
        """A fleet whose defaults are its settings, but for its name; an entry is the TOML of one
        endpoint, overrides as in `sweep__slices=2`.
        """
        defaults = {f"defaults__{k}": v for k, v in (self._shared_settings | overrides).items()}
        file = self.folder / "fleet.toml"
        tables = "".join(f"[[endpoint]]\n{entry}\n" for entry in entries)
        file.write_text(_toml(defaults) + tables, encoding="utf-8")
        return file

    def run(self, *arguments: str, **overrides: object) -> Ran:
        return commands.run(*arguments, "--config", str(self.config_file(**overrides)))

    def document(self, *arguments: str, code: int = 0, **overrides: object) -> Any:
        """The JSON document of a command that ends with this code."""
        ran = self.run(*arguments, "--json", **overrides)
        assert ran.code == code, ran
        return ran.document

    @property
    def ledger(self) -> "LedgerReader":
        """Its ledger, for rows that are read without Spark."""
        from support.ledger_reader import LedgerReader  # noqa: PLC0415 - loads PySpark

        return LedgerReader(self.folder / "ledger")

    def config(self, **overrides: object) -> Config:
        """Its configuration; overrides as in `retry__max_attempts=2`."""
        return configuration.load(self.config_file(**overrides))

    def context(self, **overrides: object) -> SweepContext:
        """The context of a sweep; overrides as in `retry__max_attempts=2`."""
        return sweep_context(self.config(**overrides))

    def set_up(self, *queues: str, **overrides: object) -> "Endpoint[S]":
        """Create its tables, as `duesweep setup` does, and queue tables of these addresses."""
        self.server.create_schema(self.schema)
        if self.rows.create is not None:
            index = quote_name(f"{self._delayed_name[:50]}_TimeIdx")
            self.execute(self.rows.create.format(table=self.delayed, index=index))
        self.server.set_up(self.config(**overrides))
        for queue in queues:
            self.create_queue(queue)
        return self

    def create_queue(self, address: str) -> Any:
        """Create the queue table that `address` names, and its schema."""
        table = self.addresses.parse(address)
        self.server.create_queue(table)
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
        return self.rows.insert(self.server, self.delayed, list(rows))

    def due_in(self, seconds: float) -> datetime:
        """The Due that NServiceBus would store for a message that comes due in `seconds`."""
        return self.rows.due_in(self.server, seconds)

    def waiting(self) -> list[str]:
        """The keys in the delayed table, sorted."""
        rows = self.fetch(f"SELECT {self.rows.key_text} AS message_key FROM {self.delayed}")
        return sorted(str(row.message_key) for row in rows)

    def queue_rows(self, address: str) -> list[QueueRow]:
        """The messages in a queue, in the order of their arrival."""
        return self.server.queue_rows(self.addresses.parse(address))

    def attempts(self) -> dict[str, Any]:
        """The rows of the retry counters, by key."""
        rows = self.fetch(
            f"SELECT {self.server.counter_key} AS message_key, message_id, destination, attempts,"
            " first_failed_at, last_failed_at, next_attempt_at, error_class, error_text"
            f" FROM {self.own_table('attempts')}"
        )
        return {row.message_key: row for row in rows}

    def journal(self, sweep_id: object) -> list[Any]:
        return self.server.journal(self.own_table("journal"), sweep_id)

    def end_back_off(self) -> None:
        attempts = self.own_table("attempts")
        self.execute(f"UPDATE {attempts} SET next_attempt_at = {self.server.past}")

    def fetch(self, text: str, *values: object) -> list[Any]:
        """The rows of a query, with their columns as attributes; values take the places of the
        server's placeholders, $1 … or `?`.
        """
        return self.server.fetch(text, *values)

    def execute(self, text: str, *values: object) -> None:
        """Run a statement, committed at once; values as for `fetch`."""
        self.server.execute(text, *values)

    def own_table(self, name: str) -> str:
        """One of duesweep's own tables, quoted: `journal`, `attempts`, `sweeps`, `bindings`."""
        return self.table(f"duesweep_{name}")

    @property
    def _delayed_name(self) -> str:
        return self.delayed_table or self.rows.table(self.name)

    @property
    def _shared_settings(self) -> dict[str, object]:
        return {
            "store__kind": self.kind,
            "store__dsn": self.dsn,
            "store__schema": self.schema,
            **self.server.settings,
            "ledger__root": str(self.folder / "ledger"),
        }


def _toml(values: Mapping[str, object]) -> str:
    # A dotted key is the same setting as a key in a section.
    return "".join(
        f"{name.replace('__', '.')} = {json.dumps(value, ensure_ascii=False)}\n"
        for name, value in values.items()
    )
