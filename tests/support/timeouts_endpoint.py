"""An endpoint whose timeouts SQL persistence keeps in PostgreSQL, as its administrator sees it."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from duesweep.core.address import TableName, quote_name
from duesweep.testing.builders import DelayedRow
from support.endpoint import Endpoint
from support.timeouts import POSTGRESQL_TABLE, destination_of, timeout_headers


# Without slots, which know no super().
@dataclass(frozen=True)
class TimeoutsEndpoint(Endpoint):
    """The same, but for the table, and for Time, which is UTC's clock without a zone."""

    @property
    def delayed(self) -> TableName:
        """Its table of timeouts."""
        table = self.delayed_table or f"{self.name.replace('.', '_')}_TimeoutData"
        return TableName(self.schema, table)

    def config_file(self, **overrides: object) -> Path:
        """Its configuration as a file."""
        return super().config_file(**{"store__kind": "sql-persistence"} | overrides)

    def set_up(self, *queues: str, **overrides: object) -> "TimeoutsEndpoint":
        """Create what SQL persistence does, and then what `duesweep setup` does."""
        self.create_table()
        super().set_up(*queues, **overrides)
        return self

    def create_table(self) -> None:
        """Create what SQL persistence does."""
        self._create_schema(self.schema)
        index = quote_name(f"{self.delayed.table[:50]}_TimeIdx")
        self.execute(POSTGRESQL_TABLE.format(table=self.delayed, index=index))

    def load(self, rows: Iterable[DelayedRow]) -> None:
        """Store these rows as they are."""
        columns = '"Id", "Destination", "SagaId", "State", "Time", "Headers", "PersistenceVersion"'
        text = f"COPY {self.delayed} ({columns}) FROM STDIN".encode()
        with self.admin.cursor() as cursor, cursor.copy(text) as copy:
            for row in rows:
                copy.write_row(_values(row))

    def due_in(self, seconds: float) -> datetime:
        """When a message comes due in `seconds`."""
        due: datetime = self.fetch("SELECT now() + make_interval(secs => $1)", seconds)[0][0]
        return due

    def waiting(self) -> list[str]:
        """The keys in the table, sorted."""
        return [row[0] for row in self.fetch(f'SELECT "Id"::text FROM {self.delayed} ORDER BY 1')]


def timeouts_of(endpoint: Endpoint) -> TimeoutsEndpoint:
    """The same endpoint, with SQL persistence's table instead of the transport's."""
    return TimeoutsEndpoint(
        **{each.name: getattr(endpoint, each.name) for each in fields(endpoint)}
    )


def timeout_destination(row: DelayedRow) -> str | None:
    """The row's destination, less the NUL that no column of text holds here."""
    destination = destination_of(row)
    return destination and destination.replace("\0", "")


def _values(row: DelayedRow) -> tuple[Any, ...]:
    due = row.due
    time = due.astimezone(UTC).replace(tzinfo=None) if isinstance(due, datetime) else due
    return (
        *(row.key, timeout_destination(row), str(row.key), row.body, time),
        *(timeout_headers(row), "6.0.0"),
    )
