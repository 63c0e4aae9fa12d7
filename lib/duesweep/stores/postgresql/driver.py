"""The driver's session on a PostgreSQL store: what is due, and the life of its sweep."""

import uuid
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from duesweep.drivers.postgresql import Connection, literal
from duesweep.stores.postgresql.check import check_tables
from duesweep.stores.postgresql.journal import PostgreSqlJournal, lock_key_of
from duesweep.stores.postgresql.place import PostgreSqlPlace
from duesweep.stores.postgresql.zone import writer_time_zone
from duesweep.stores.values import Horizon, Slices, SweepRun

_FIRST = ("-infinity", "00000000-0000-0000-0000-000000000000")
_END = ("infinity", "ffffffff-ffff-ffff-ffff-ffffffffffff")


class PostgreSqlDriverSession(PostgreSqlJournal):
    """Its sweep lives as long as this session."""

    def __init__(self, connection: Connection, store: PostgreSqlPlace) -> None:
        super().__init__(connection, store)
        self._zone: str | None = store.writer_time_zone

    def __enter__(self) -> "PostgreSqlDriverSession":
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.__exit__(*error)

    def check(self) -> None:
        """Raise `ConfigError` unless tables, shapes and rights are as needed."""
        check_tables(self._connection, self._tables, self._store.writer_time_zone)
        self.jdbc()

    def has_work(self) -> bool:
        """Whether a message is due and ripe, or something is to be settled."""
        horizon = self.horizon()
        if self._row("find_pending", source=self.source, horizon=horizon.before).found:
            return True
        if self._row("find_gone_attempts", source=self.source).found:
            return True
        return bool(self._dead(keep=False))

    def horizon(self) -> Horizon:
        """NServiceBus's predicate, evaluated by the server in the writers' time zone."""
        if self._zone is None:
            dsn, delayed = self._store.dsn, self._store.delayed
            self._zone = writer_time_zone(self._connection, dsn, delayed)
        with self._connection.transaction():
            self._row("set_zone", zone=self._zone)
            row = self._row("horizon")
        return Horizon(row.horizon, row.server_time)

    def count_pending(self, horizon: Horizon) -> int:
        """How many messages are due and ripe."""
        row = self._row("count_pending", source=self.source, horizon=horizon.before)
        return int(row.pending)

    def plan(self, run: SweepRun, slices: int) -> Slices:
        """Slices of equal size by (due, id), however many messages share one Due."""
        with self._connection.transaction():
            self._row("set_sort_memory")
            rows = self._rows(
                "plan_bounds", source=self.source, horizon=run.horizon.before, slices=slices
            )
        planned = _sizes(rows)
        self._execute("set_planned", sweep_id=run.sweep_id, planned=list(planned))
        before = literal(run.horizon.before.isoformat())
        return Slices(
            self._literal_query("plan_keys", horizon=before, bounds=_bounds(rows)), planned
        )

    def open_sweep(self, horizon: Horizon) -> SweepRun:
        """Open a sweep under a new id, alive as long as this session."""
        sweep_id = uuid.uuid4()
        lock_key = lock_key_of("sweep", str(sweep_id))
        self._row("try_lock", lock_key=lock_key)
        with self._connection.transaction():
            pruned = self._execute("prune_attempts", source=self.source)
            self._execute(
                "open_sweep",
                sweep_id=sweep_id,
                source=self.source,
                lock_key=lock_key,
                horizon=horizon.before,
                attempts_changed=pruned > 0,
            )
        return SweepRun(sweep_id, horizon)

    def progress(self, sweep_id: UUID) -> tuple[int, int]:
        """Batches and messages done so far."""
        row = self._row("progress", sweep_id=sweep_id)
        return row.batches, row.dispatched + row.failed


def _sizes(rows: Sequence[Any]) -> tuple[int, ...]:
    """How many messages each slice has; all but the last have as many."""
    if not rows:
        return ()
    total = rows[0].total
    size = -(-total // len(rows))
    return tuple(min(size, total - start) for start in range(0, total, size))


def _bounds(rows: Sequence[Any]) -> str:
    """Each slice's number and the (due, id) from which and before which it goes, as literals."""
    pairs = [(row.due, row.id) for row in rows[1:]]
    firsts, ends = [_FIRST, *pairs], [*pairs, _END]
    return ", ".join(
        f"({number}, {_pair(first)}, {_pair(end)})"
        for number, (first, end) in enumerate(zip(firsts, ends, strict=True))
    )


def _pair(bound: tuple[str, str]) -> str:
    due, key = bound
    return f"{literal(due)}::timestamptz, {literal(key)}::uuid"
