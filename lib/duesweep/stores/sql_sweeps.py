"""The sweeps and commands of a relational store, while they are open."""

from contextlib import nullcontext
from uuid import UUID

from duesweep.core.change import Command
from duesweep.core.errors import StoreError, make_storable
from duesweep.drivers.statements import retry_lost_transactions
from duesweep.stores.dialect import batches_lock
from duesweep.stores.due import Horizon, Slices
from duesweep.stores.leases import sweep_lease
from duesweep.stores.sql_connection import SqlConnection, SqlPart
from duesweep.stores.sql_due import SqlDue
from duesweep.stores.sql_journal import read_progress
from duesweep.stores.sql_task import refuse_dropped
from duesweep.stores.summary import planned_slices
from duesweep.stores.sweeps import SweepRun, Sweeps


class SqlSweeps(SqlPart, Sweeps):
    """A lease of the session shows that a sweep lives."""

    def __init__(self, at: SqlConnection, due: SqlDue) -> None:
        super().__init__(at)
        self._due = due
        # How many messages each slice of its open sweeps was planned with.
        self._planned: dict[UUID, list[int]] = {}

    @retry_lost_transactions
    def open(
        self, horizon: Horizon, *, engine: str | None = None, command: Command | None = None
    ) -> SweepRun:
        run = SweepRun(self._location.world.new_id(), horizon)
        self._at.leases.take(sweep_lease(run.sweep_id))
        if command is None:
            self._open_sweep(run, engine)
        else:
            self._open_command(run, command)
        return run

    def _open_sweep(self, run: SweepRun, engine: str | None) -> None:
        is_gone = self._session.row("find_gone_attempts", source=self.source).found
        with self._session.transaction() if is_gone else nullcontext():
            pruned = self._dialect.prune_attempts(self._session, self.source) if is_gone else 0
            took = self._session.execute(
                "open_sweep",
                sweep_id=run.sweep_id,
                source=self.source,
                horizon=run.horizon.before,
                engine=engine,
                attempts_changed=pruned > 0,
            )
            refuse_dropped(took, self.source)

    def _open_command(self, run: SweepRun, command: Command) -> None:
        took = self._session.execute(
            "open_command",
            sweep_id=run.sweep_id,
            source=self.source,
            horizon=run.horizon.before,
            command=command.name.value,
            given_by=make_storable(command.given_by),
            given_reason=command.reason and make_storable(command.reason),
        )
        refuse_dropped(took, self.source)

    def note_slices(self, run: SweepRun, plan: Slices) -> int:
        noted = self._planned.setdefault(run.sweep_id, [])
        before = len(noted)
        noted += plan.planned
        self._session.execute(
            "set_planned", sweep_id=run.sweep_id, planned=noted, horizon=run.horizon.before
        )
        return before

    def progress(self, sweep_id: UUID) -> tuple[int, int]:
        return read_progress(self._session, sweep_id)

    @retry_lost_transactions
    def stop(self, sweep_id: UUID, after_seconds: float) -> None:
        after_ms = round(after_seconds * 1_000)
        self._session.execute("stop_sweep", sweep_id=sweep_id, after_ms=after_ms)

    def release(self, sweep_id: UUID) -> None:
        self._planned.pop(sweep_id, None)
        self._at.leases.give_back(sweep_lease(sweep_id))

    @retry_lost_transactions
    def close(
        self,
        sweep_id: UUID,
        *,
        abandoned: bool,
        remaining: int | Horizon,
        reason: str | None = None,
        waits: bool = True,
    ) -> bool:
        with self._session.transaction():
            if not self._await_batches(sweep_id, waits=waits):
                return False
            # The sweep's own process may have taken its lease again, while this one was frozen.
            if not waits and not self._at.leases.take(sweep_lease(sweep_id)):
                return False
            took = self._session.execute(
                "close_sweep",
                sweep_id=sweep_id,
                abandoned=abandoned,
                remaining=self._remaining(sweep_id, remaining),
                reason=reason and make_storable(reason),
            )
            refuse_dropped(took, self.source)
        return True

    def _await_batches(self, sweep_id: UUID, *, waits: bool) -> bool:
        """Let no other batch of a sweep begin until this transaction ends. Returns whether the
        sweep is still open and, unless it `waits` for them, no batch is in flight.
        """
        name = "await_batches" if waits else "are_batches_over"
        rows = self._session.rows(name, sweep_id=sweep_id, lock=batches_lock(sweep_id))
        are_over = any(row.are_over for row in rows)
        if waits and rows and not are_over:
            raise StoreError(
                f"Batches of sweep {sweep_id} of {self.source} have not ended for 25 s; "
                "the next sweep closes it",
                transient=True,
            )
        return are_over

    def _remaining(self, sweep_id: UUID, remaining: int | Horizon) -> int:
        """How many messages are left, counted if a slice is not complete. If all are, to count
        could cost as much as the plan.
        """
        if isinstance(remaining, int):
            return remaining
        of_sweep = {"sweep_id": sweep_id}
        ends, [sweep] = self._session.rows_of_each(
            ("read_slice_ends", of_sweep, {}), ("read_sweep", of_sweep, {}), what="read_sweep"
        )
        complete = {end.slice for end in ends if end.reason is None}
        planned = planned_slices(sweep)
        is_complete = complete.issuperset(range(len(planned)))
        return 0 if is_complete else self._due.count_pending(remaining, most=1)
