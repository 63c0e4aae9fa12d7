"""The driver's session on a PostgreSQL store: what is due."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from duesweep.core.policy import Slicing
from duesweep.core.waiting import DueSpan, WaitingMessage
from duesweep.drivers.postgresql.session import PostgreSqlSession, literal
from duesweep.stores.journal import JdbcSource, SweepSummary
from duesweep.stores.postgresql.check import check_tables
from duesweep.stores.postgresql.location import PostgreSqlLocation
from duesweep.stores.postgresql.locks import PostgreSqlLocks
from duesweep.stores.postgresql.look import PostgreSqlLook
from duesweep.stores.postgresql.wanted import wanted_tables
from duesweep.stores.postgresql.zone import horizon_in, zone_of
from duesweep.stores.relational.auditing import KEYS_PER_PAGE, RelationalAudit
from duesweep.stores.relational.driver import RelationalDriverSession, slice_sizes
from duesweep.stores.relational.locks import LockingSession
from duesweep.stores.values import Horizon, Slices, SweepRun

_LOWEST_ID = "00000000-0000-0000-0000-000000000000"
_END = ("infinity", "ffffffff-ffff-ffff-ffff-ffffffffffff")


class PostgreSqlDriverSession(RelationalDriverSession):
    """Its sweep lives as long as this session."""

    def __init__(self, connection: PostgreSqlSession, store: PostgreSqlLocation) -> None:
        session = LockingSession(connection.named(store.names), PostgreSqlLocks(connection))
        super().__init__(session, store.source, str(store.delayed), store.kind)
        self._connection = connection
        self._store = store
        self._zone: str | None = None
        self._found = 0

    def __enter__(self) -> "PostgreSqlDriverSession":
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.__exit__(*error)

    def check(self) -> None:
        """Raise `ConfigError` unless tables, shapes and rights are as needed."""
        store = self._store
        check_tables(self._connection, wanted_tables(store), store.writer_time_zone)
        self.jdbc()

    def horizon(self) -> Horizon:
        """NServiceBus's predicate, evaluated by the server in the writers' time zone."""
        return horizon_in(self._writers_zone(), self._statements)

    def _writers_zone(self) -> str:
        if self._zone is None:
            self._zone = zone_of(self._connection, self._store)
        return self._zone

    def next_due(self, horizon: Horizon) -> datetime | None:
        """The instant at which the first message that is not due yet comes due."""
        since = self._due_text(horizon.before)
        due: datetime | None = self._statements.row("next_due", since=since, zone=horizon.zone).due
        return due

    def summary(self, sweep_id: UUID) -> tuple[SweepSummary, bool]:
        """The sweep's row for `sweeps`, and whether retry counters changed."""
        _, messages = self.progress(sweep_id)
        with self._patient(messages):
            return super().summary(sweep_id)

    def plan(self, run: SweepRun, slicing: Slicing) -> Slices:
        """Slices of equal size by (due, id), however many messages share one Due."""
        with self._looking_at_all():
            rows = self._statements.rows(
                "plan_bounds", **self._pending(run.horizon), **asdict(slicing)
            )
        planned = slice_sizes(rows)
        self._found = sum(planned)
        return Slices(self._claim_keys_query(run.horizon, rows), planned, self._count(run, planned))

    def plan_sql(self, horizon: Horizon) -> str:
        """The query of a plan with one slice."""
        return self._claim_keys_query(horizon, [None])

    def _likes(self, pattern: str) -> Sequence[object]:
        return self._kind.pausing(pattern, self._store.addresses.default_schema)

    def _claim_keys_query(self, horizon: Horizon, bounds: Sequence[Any]) -> str:
        before = horizon.before.isoformat()
        query = self._statements.query(
            "plan_claim_keys", source=self.source, horizon=before, paused=self._pausing()
        )
        return query.replace("/* bounds */", self._bounds(bounds, horizon))

    def jdbc(self) -> JdbcSource:
        """How Spark reaches the database."""
        seconds = self._store.timeouts.read_seconds(self._found)
        return JdbcSource(*self._connection.jdbc_address(seconds))

    @contextmanager
    def look(self, span: DueSpan) -> Iterator[Iterator[Sequence[WaitingMessage]]]:
        """The messages that are due in the span, in pages; see `LooksAtMessages`."""
        look = self._look()
        with self._looking_at_all(), look.pages(span) as pages:
            yield pages

    def find(self, keys: Sequence[str], *, with_body: bool = False) -> Sequence[WaitingMessage]:
        """The messages with these keys that are stored."""
        return self._look().find(keys, with_body=with_body)

    def count_waiting(self, ends: Sequence[datetime]) -> Sequence[int]:
        """How many messages are due before, between and after these instants."""
        look = self._look()
        with self._looking_at_all():
            return look.count(ends)

    def audited(self) -> RelationalAudit:
        """What the store holds; see `CanBeAudited`."""
        session = LockingSession(self._statements, self._locks)
        return RelationalAudit(session, self.source, self._stored_keys, self._looking_at_all)

    @contextmanager
    def _stored_keys(self) -> Iterator[Iterator[list[Any]]]:
        statements = self._connection.named(self._store.names)
        with self._looking_at_all(), statements.pages("stored_keys", KEYS_PER_PAGE, {}) as pages:
            yield pages

    def _look(self) -> PostgreSqlLook:
        statements = self._connection.named(self._store.names)
        return PostgreSqlLook(statements, self.source, self._store.kind, self._writers_zone())

    def _looking_at_all(self) -> AbstractContextManager[None]:
        table = self._store.delayed
        about = self._connection.row("estimate_rows", schema=table.schema, table=table.table)
        return self._patient(about.rows)

    def _patient(self, messages: int) -> AbstractContextManager[None]:
        """A transaction with statements about so many messages at once."""
        return self._connection.wait_longer(self._store.timeouts.plan_seconds(messages))

    def _due_text(self, due: datetime | None) -> str:
        return "-infinity" if due is None else due.astimezone(UTC).isoformat()

    def _bounds(self, rows: Sequence[Any], horizon: Horizon) -> str:
        """Each slice's number and the (due, id) from which and before which it goes."""
        pairs = [(row.due, row.id) for row in rows[1:]]
        first = (self._due_text(horizon.since), _LOWEST_ID)
        firsts, ends = [first, *pairs], [*pairs, _END]
        return ", ".join(
            f"({number}, {self._pair(first)}, {self._pair(end)})"
            for number, (first, end) in enumerate(zip(firsts, ends, strict=True))
        )

    def _pair(self, bound: tuple[str, str]) -> str:
        due, key = bound
        due_type = self._store.kind.names["due_type"]
        return f"{literal(due)}::{due_type}, {literal(key)}::uuid"
