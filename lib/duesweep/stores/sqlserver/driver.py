"""The driver's session on a store on SQL Server: what is due."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from duesweep.core.address import SqlServerTable
from duesweep.core.policy import Slicing
from duesweep.core.waiting import DueSpan, WaitingMessage
from duesweep.drivers.sqlserver.binding import bound_text, due_of, literal
from duesweep.drivers.sqlserver.session import SqlServerSession, connect
from duesweep.errors import Problem, StoreError
from duesweep.stores.journal import JdbcSource, SweepSummary
from duesweep.stores.relational.auditing import KEYS_PER_PAGE, RelationalAudit
from duesweep.stores.relational.driver import RelationalDriverSession, slice_sizes
from duesweep.stores.relational.locks import LockingSession, sweep_lock
from duesweep.stores.relational.summary import Lateness, lateness_of
from duesweep.stores.sqlserver.check import check_tables, delayed_index_notices
from duesweep.stores.sqlserver.delayed import find_delayed
from duesweep.stores.sqlserver.location import SqlServerLocation
from duesweep.stores.sqlserver.locks import SqlServerLocks
from duesweep.stores.sqlserver.look import SqlServerLook
from duesweep.stores.values import Horizon, Slices, SweepRun

# Where `datetime` begins and ends.
_FIRST = "1753-01-01 00:00:00.000"
_END = "9999-12-31 23:59:59.997"


class SqlServerDriverSession(RelationalDriverSession):
    """Its sweep lives as long as this session, whose application lock says so."""

    def __init__(self, connection: SqlServerSession, store: SqlServerLocation) -> None:
        self._delayed_table: SqlServerTable = find_delayed(connection, store)
        self._names = store.names(self._delayed_table)
        session = LockingSession(connection.named(self._names), SqlServerLocks(connection))
        super().__init__(session, store.source, self._delayed_table.sql, store.kind)
        self._connection = connection
        self._store = store
        self._found = 0

    def __enter__(self) -> "SqlServerDriverSession":
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.__exit__(*error)

    def check(self) -> None:
        """Raise `ConfigError` unless tables, shapes and rights are as needed."""
        check_tables(self._connection, self._store.kind, self._delayed_table)
        self.jdbc()

    def table_notices(self) -> Sequence[Problem]:
        """What is missing of the delayed table's indexes."""
        return delayed_index_notices(self._connection, self._store.kind, self._delayed_table)

    def horizon(self) -> Horizon:
        """NServiceBus's predicate, evaluated by the server."""
        now = due_of(self._statements.row("horizon").horizon)
        return Horizon(now, now)

    def next_due(self, horizon: Horizon) -> datetime | None:
        """The Due of the first message that is not due yet."""
        since = self._due_text(horizon.before)
        due: str | None = self._statements.row("next_due", since=since).due
        return None if due is None else due_of(due)

    def summary(self, sweep_id: UUID) -> tuple[SweepSummary, bool]:
        """The sweep's row for `sweeps`, and whether retry counters changed."""
        _, messages = self.progress(sweep_id)
        with self._patient(messages):
            return super().summary(sweep_id)

    def plan(self, run: SweepRun, slicing: Slicing) -> Slices:
        """Slices of equal size by (Due, key), however many messages share one Due."""
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

    def _claim_keys_query(self, horizon: Horizon, bounds: Sequence[Any]) -> str:
        before = bound_text(horizon.before)
        query = self._statements.query(
            "plan_claim_keys", source=self.source, horizon=before, paused=self._pausing()
        )
        return query.replace("/* bounds */", self._bounds(bounds, horizon))

    def jdbc(self) -> JdbcSource:
        """How Spark reaches the database."""
        timeouts = self._store.timeouts
        limits = replace(timeouts.driver, answer_seconds=timeouts.read_seconds(self._found))
        return JdbcSource(*self._connection.jdbc_address(limits, self._store.jdbc_url))

    @contextmanager
    def look(self, span: DueSpan) -> Iterator[Iterator[Sequence[WaitingMessage]]]:
        """The messages that are due in the span, in pages; see `LooksAtMessages`."""
        seconds = self._store.timeouts.plan_seconds(self._estimated_rows())
        with (
            connect(self._store.dsn, self._store.timeouts.driver) as stream,
            stream.wait_longer(seconds),
            self._look().pages(stream.named(self._names), span) as pages,
        ):
            yield pages

    def find(self, keys: Sequence[str], *, with_body: bool = False) -> Sequence[WaitingMessage]:
        """The messages with these keys that are stored."""
        with self._looking_at_all():
            return self._look().find(keys, with_body=with_body)

    def count_waiting(self, ends: Sequence[datetime]) -> Sequence[int]:
        """How many messages are due before, between and after these instants."""
        with self._looking_at_all():
            return self._look().count(ends)

    def audited(self) -> RelationalAudit:
        """What the store holds; see `CanBeAudited`."""
        session = LockingSession(self._statements, self._locks)
        return RelationalAudit(session, self.source, self._stored_keys, self._looking_at_all)

    @contextmanager
    def _stored_keys(self) -> Iterator[Iterator[list[Any]]]:
        seconds = self._store.timeouts.plan_seconds(self._estimated_rows())
        with (
            connect(self._store.dsn, self._store.timeouts.driver) as stream,
            stream.wait_longer(seconds),
            stream.named(self._names).pages("stored_keys", KEYS_PER_PAGE, {}) as pages,
        ):
            yield pages

    def _look(self) -> SqlServerLook:
        statements = self._connection.named(self._names)
        return SqlServerLook(statements, self.source, self._store.kind)

    def _looking_at_all(self) -> AbstractContextManager[None]:
        return self._patient(self._estimated_rows())

    def _estimated_rows(self) -> int:
        return int(self._statements.row("estimate_rows", table=self._delayed_table.sql).rows)

    def _patient(self, messages: int) -> AbstractContextManager[None]:
        """For statements about so many messages at once."""
        return self._connection.wait_longer(self._store.timeouts.plan_seconds(messages))

    def _await_batches(self, sweep_id: UUID) -> bool:
        rows = self._statements.rows(
            "await_batches", sweep_id=sweep_id, lock=batches_lock(sweep_id)
        )
        if rows and rows[0].answer < 0:
            raise StoreError(
                f"Batches of sweep {sweep_id} of {self.source} have not ended for 25 s; "
                "the next sweep closes it",
                transient=True,
            )
        return bool(rows) and bool(rows[0].is_open)

    def _are_batches_over(self, sweep_id: UUID) -> bool:
        rows = self._statements.rows(
            "are_batches_over", sweep_id=sweep_id, lock=batches_lock(sweep_id)
        )
        return any(row.answer >= 0 and row.is_open for row in rows)

    def _lateness(self, sweep_id: UUID) -> Lateness:
        rows = self._statements.rows("lateness", sweep_id=sweep_id)
        return lateness_of(row.lateness_ms for row in rows)

    def _prune_attempts(self) -> int:
        if not self._statements.row("find_gone_attempts", source=self.source).found:
            return 0
        self._statements.execute("follow_rescheduled", source=self.source)
        pruned = 0
        while some := self._statements.execute("prune_attempts", source=self.source):
            pruned += some
        return pruned

    def _due_text(self, due: datetime | None) -> str:
        return _FIRST if due is None else bound_text(due)

    def _moment(self, moment: datetime | None) -> object:
        return None if moment is None else bound_text(moment)

    def _instant(self, due: Any) -> datetime:
        return due_of(due)

    def _likes(self, pattern: str) -> Sequence[object]:
        return [{"fits": like} for like in self._kind.pausing(pattern, None)]

    def _bounds(self, rows: Sequence[Any], horizon: Horizon) -> str:
        """Each slice's number and the (Due, key) from which and before which it goes."""
        lowest = self._store.kind.lowest_key
        pairs = [(row.due, row.id) for row in rows[1:]]
        first = (self._due_text(horizon.since), lowest)
        firsts, ends = [first, *pairs], [*pairs, (_END, lowest)]
        return ", ".join(
            f"({number}, {self._pair(first)}, {self._pair(end)})"
            for number, (first, end) in enumerate(zip(firsts, ends, strict=True))
        )

    def _pair(self, bound: tuple[str, str]) -> str:
        due, key = bound
        key_type = self._store.kind.names["key_type"]
        moment = f"CAST(CONVERT(datetime2(7), {literal(due)}, 121) AS datetime)"
        return f"{moment}, CONVERT({key_type}, {literal(key)})"


def batches_lock(sweep_id: UUID) -> str:
    """The lock that a sweep's batches share, and that closing the sweep takes alone."""
    return f"{sweep_lock(sweep_id)}/batches"
