"""What settle needs of a PostgreSQL store's database: sweeps to close and seal, rows to read."""

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from duesweep.drivers.postgresql import Connection, literal
from duesweep.errors import ConfigError, StoreError
from duesweep.sql import statement
from duesweep.stores.postgresql.place import PostgreSqlPlace
from duesweep.stores.values import (
    JdbcSource,
    JournalBatch,
    JournalExtent,
    SweepSummary,
    UnsettledSweep,
)

# About 150 MB, as rows.
_MESSAGES_PER_PIECE = 500_000
_SETTLER_WAIT_SECONDS = 300.0
_SETTLER_POLL_SECONDS = 0.2


class PostgreSqlJournal:
    """Session-level advisory locks say that a sweep lives, and who settles a source."""

    def __init__(self, connection: Connection, store: PostgreSqlPlace) -> None:
        self.source = store.source
        self._connection = connection
        self._store = store
        self._tables = store.tables

    @contextmanager
    def settling(self) -> Iterator[None]:
        """Hold the source's settle lock."""
        key = lock_key_of("settle", self.source)
        deadline = time.monotonic() + _SETTLER_WAIT_SECONDS
        while not self._row("try_lock", lock_key=key).locked:
            if time.monotonic() > deadline:
                raise StoreError(
                    f"Another sweep has been settling {self.source} for "
                    f"{_SETTLER_WAIT_SECONDS:.0f} s; what this one did is in the journal, and the "
                    "next sweep brings it to the ledger",
                    transient=True,
                )
            time.sleep(_SETTLER_POLL_SECONDS)
        try:
            yield
        finally:
            self._row("unlock", lock_key=key)

    def dead_sweeps(self) -> Sequence[UnsettledSweep]:
        """Sweeps whose driver is gone; this session holds their locks from now on."""
        return self._dead(keep=True)

    def close_sweep(self, sweep_id: UUID, *, abandoned: bool, remaining: int) -> bool:
        """Wait for batches in flight, then close; False when it was closed already."""
        with self._connection.transaction():
            if not self._rows("await_batches", sweep_id=sweep_id):
                return False
            self._execute(
                "close_sweep", sweep_id=sweep_id, abandoned=abandoned, remaining=remaining
            )
        return True

    def seal(self, sweep_id: UUID) -> None:
        """Note when a closed sweep was first settled."""
        self._execute("seal", sweep_id=sweep_id)

    def summary(self, sweep_id: UUID) -> tuple[SweepSummary, bool]:
        """The sweep's row for `sweeps`, and whether retry counters changed."""
        row = self._row("summarise", sweep_id=sweep_id)
        return _summary(row), row.attempts_changed

    def batches(self, sweep_id: UUID) -> Iterator[Sequence[JournalBatch]]:
        """What the sweep delivered, in pieces."""
        after_id = 0
        while rows := self._rows(
            "read_batches", sweep_id=sweep_id, after_id=after_id, messages=_MESSAGES_PER_PIECE
        ):
            yield [JournalBatch(sweep_id, row.outcomes) for row in rows]
            after_id = rows[-1].id

    def exhausted(self, sweep_id: UUID) -> JournalExtent:
        """How much the sweep exhausted."""
        row = self._row("exhausted_extent", sweep_id=sweep_id)
        return JournalExtent(row.rows, row.longest)

    def exhausted_query(self, sweep_id: UUID) -> str:
        """Its exhausted messages, for JDBC."""
        return self._literal_query("read_exhausted", sweep_id=literal(str(sweep_id)))

    def retries_query(self) -> str:
        """The source's retry counters, for JDBC."""
        return self._literal_query("read_retries")

    def delete_settled(self, sweep_id: UUID) -> None:
        """Forget the sweep."""
        with self._connection.transaction():
            self._execute("delete_settled", sweep_id=sweep_id)
            self._execute("delete_sweep", sweep_id=sweep_id)

    def binding(self) -> UUID | None:
        """The ledger that the source is bound to; `ConfigError` where it is another's source."""
        rows = self._rows("read_binding", source=self.source)
        if rows and rows[0].delayed != str(self._store.delayed):
            raise ConfigError(
                f"The source {self.source} is {rows[0].delayed}, and cannot be "
                f"{self._store.delayed} too: set another store.name"
            )
        return rows[0].ledger_id if rows else None

    def bind(self, ledger_id: UUID) -> None:
        """Bind the source for good."""
        delayed = str(self._store.delayed)
        self._execute("bind", source=self.source, delayed=delayed, ledger_id=ledger_id)

    def jdbc(self) -> JdbcSource:
        """How Spark reaches the database."""
        return JdbcSource(*self._connection.jdbc_address())

    def _dead(self, *, keep: bool) -> Sequence[UnsettledSweep]:
        dead = []
        for row in self._rows("unsettled_sweeps", source=self.source):
            if not self._row("try_lock", lock_key=row.lock_key).locked:
                continue
            if not keep:
                self._row("unlock", lock_key=row.lock_key)
            dead.append(UnsettledSweep(*row))
        return dead

    def _literal_query(self, name: str, **literals: str) -> str:
        names = {key: str(table) for key, table in self._tables.items()}
        literals["source"] = literal(self.source)
        return statement("postgresql", name).format(**names, **literals)

    def _row(self, name: str, **values: object) -> Any:
        return self._connection.row(name, self._tables, **values)

    def _rows(self, name: str, **values: object) -> list[Any]:
        return self._connection.rows(name, self._tables, **values)

    def _execute(self, name: str, **values: object) -> int:
        return self._connection.execute(name, self._tables, **values)


def _summary(row: Any) -> SweepSummary:
    seconds = max((row.closed_at - row.started_at).total_seconds(), 0.001)
    return SweepSummary(
        sweep_id=str(row.sweep_id),
        source=row.source,
        start=row.started_at,
        end=row.closed_at,
        horizon=row.horizon,
        found=row.found,
        claimed=row.claimed,
        dispatched=row.dispatched,
        failed=row.failed,
        exhausted=row.exhausted,
        skipped=row.skipped,
        left=row.cut,
        held_back=row.held_back,
        bytes=row.bytes,
        lateness_p50_ms=row.p50,
        lateness_p95_ms=row.p95,
        lateness_max_ms=row.longest,
        rows_per_second=round((row.dispatched + row.exhausted) / seconds, 1),
        outcome=_outcome(row),
        reason=row.reason,
    )


def _outcome(row: Any) -> str:
    if row.abandoned:
        return "abandoned"
    if not row.is_complete and row.remaining:
        return "incomplete"
    return "failures" if row.failed or row.exhausted else "done"


def lock_key_of(kind: str, name: str) -> int:
    """The key of an advisory lock: 64 bits, so that others' keys are not met by chance."""
    digest = hashlib.sha256(f"duesweep/{kind}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], signed=True)
