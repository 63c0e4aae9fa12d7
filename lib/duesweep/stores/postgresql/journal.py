"""What settle needs of a PostgreSQL store's database: sweeps to close and seal, rows to read."""

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

from duesweep.drivers.postgresql import Connection, literal
from duesweep.errors import StoreError
from duesweep.sql import statement
from duesweep.stores.values import (
    JdbcSource,
    JournalBatch,
    JournalExtent,
    SweepSummary,
    UnsettledSweep,
)

if TYPE_CHECKING:
    from duesweep.stores.postgresql.store import PostgreSqlStore

# 1,000 batches of 1,000 messages are about 50 MB.
_BATCHES_PER_PIECE = 1_000
_SETTLER_WAIT_SECONDS = 300.0
_SETTLER_POLL_SECONDS = 0.2


class PostgreSqlJournal:
    """Session-level advisory locks say that a sweep lives, and who settles a source."""

    def __init__(self, connection: Connection, store: "PostgreSqlStore") -> None:
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

    def seal(self, sweep_ids: Sequence[UUID], settle_id: UUID) -> None:
        """Seal closed sweeps under `settle_id`."""
        self._execute("seal", sweep_ids=list(sweep_ids), settle_id=settle_id)

    def summaries(self, settle_id: UUID) -> tuple[Sequence[SweepSummary], bool]:
        """The group's rows for `sweeps`, and whether retry counters changed."""
        rows = self._rows("summarise", settle_id=settle_id)
        return [_summary(row) for row in rows], any(row.attempts_changed for row in rows)

    def batches(self, settle_id: UUID) -> Iterator[Sequence[JournalBatch]]:
        """What the group delivered, in pieces."""
        after_id = 0
        while rows := self._rows(
            "read_batches", settle_id=settle_id, after_id=after_id, count=_BATCHES_PER_PIECE
        ):
            yield [JournalBatch(row.sweep_id, row.outcomes) for row in rows]
            after_id = rows[-1].id

    def exhausted(self, settle_id: UUID) -> JournalExtent:
        """How much the group exhausted."""
        row = self._row("exhausted_extent", settle_id=settle_id)
        return JournalExtent(row.rows, row.longest)

    def exhausted_query(self, settle_id: UUID) -> str:
        """The group's exhausted messages, for JDBC."""
        return self._literal_query("read_exhausted", settle_id=literal(str(settle_id)))

    def retries_query(self) -> str:
        """The source's retry counters, for JDBC."""
        return self._literal_query("read_retries")

    def delete_settled(self, settle_id: UUID) -> None:
        """Forget the group."""
        with self._connection.transaction():
            self._execute("delete_settled", settle_id=settle_id)
            self._execute("delete_sweeps", settle_id=settle_id)

    def bound_ledger(self, ledger_id: UUID) -> UUID:
        """Bind the source unless it is bound; the ledger that it is bound to."""
        self._execute("bind", source=self.source, ledger_id=ledger_id)
        bound: UUID = self._row("read_binding", source=self.source).ledger_id
        return bound

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
