"""The due messages of a relational store, and their plan."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from duesweep.core.policy import Pause, Slicing
from duesweep.drivers.statements import Session
from duesweep.stores.due import (
    Due,
    Failing,
    Horizon,
    JdbcSource,
    LockedRows,
    Slices,
    Upcoming,
    Work,
)
from duesweep.stores.sql_connection import SqlConnection, SqlPart, read_pauses
from duesweep.stores.sql_journal import SqlJournal
from duesweep.stores.summary import aware
from duesweep.stores.tables import estimated_rows

# More than any server rounds a Due: a message must not be left out because of that.
_ROUNDING = timedelta(milliseconds=10)
# How many messages a row of a plan has.
_CHUNK_ROWS = 1_000
# More messages than any table has.
_ALL = 2**62


class SqlDue(SqlPart, Due):
    """It knows destinations, unless they are in the headers."""

    def __init__(self, at: SqlConnection, journal: SqlJournal) -> None:
        super().__init__(at)
        self._journal = journal
        self._pauses: Sequence[Pause] | None = None

    def jdbc(self, messages: int = 0) -> JdbcSource:
        seconds = self._location.timeouts.read_seconds(messages)
        return JdbcSource(*self._session.jdbc_address(seconds, self._location.jdbc_url))

    def horizon(self) -> Horizon:
        self._at.leases.renew()
        self.forget_pauses()
        return self._dialect.horizon(self._session, self._at.zone)

    def find_work(self, horizon: Horizon) -> Work | None:
        if found := self._session.rows("find_pending", **self._pending(horizon)):
            first = found[0].due
            return Work(None if first is None else aware(first) - _ROUNDING)
        if self._session.row("find_gone_attempts", source=self.source).found:
            return Work()
        is_unsettled = any(not one.is_alive for one in self._journal.unsettled())
        return Work(only_settles=True) if is_unsettled else None

    def next_due(self, horizon: Horizon) -> Upcoming:
        if horizon.since is not None:
            return Upcoming(next_due(self._session, horizon.before, horizon.zone))
        of_source = {"source": self.source, "since": horizon.before, "zone": horizon.zone}
        row, failing = self._session.row("upcoming", **of_source), None
        if row.messages:
            failing = Failing(int(row.messages), aware(row.next_attempt))
        return Upcoming(row.due and aware(row.due), failing)

    def locked(self, horizon: Horizon) -> Sequence[LockedRows]:
        rows = self._session.rows("locked_rows", horizon=horizon.before)
        found = []
        for row in rows:
            if row.messages > 0 and row.due is not None:
                seconds = (horizon.before - aware(row.due)).total_seconds()
                found.append(LockedRows(int(row.messages), row.holder, row.since, seconds))
        return found

    def count_pending(self, horizon: Horizon, most: int | None = None) -> int:
        self.forget_pauses()
        pending = self._pending(horizon)
        with self._at.looking_at_all():
            row = self._session.row("count_pending", **pending, most=most or _ALL)
        return int(row.pending)

    def count_stored(self, since: datetime | None) -> int:
        with self._at.looking_at_all():
            if since is None:
                return int(self._session.row("count_stored").stored)
            return int(self._session.row("count_stored_since", since=since).stored)

    def destinations(self, horizon: Horizon | None) -> Sequence[str]:
        if not self._kind.has_destination:
            return ()
        if horizon is not None:
            rows = self._session.rows("due_destinations", **self._pending(horizon))
        else:
            with self._at.looking_at_all():
                rows = self._session.rows("stored_destinations")
        return [row.destination for row in rows]

    def pauses(self) -> Sequence[Pause]:
        """Read once in a look: each batch asks again."""
        if self._pauses is None:
            self._pauses = read_pauses(self._session, self.source)
        return self._pauses

    def forget_pauses(self) -> None:
        """Read them again when they are needed: they may be others now."""
        self._pauses = None

    def _pending(self, horizon: Horizon) -> dict[str, object]:
        """The values by which statements find eligible messages. A row that does not fit the
        `paused` patterns may be paused nevertheless: its claim tells.
        """
        return {
            "source": self.source,
            "horizon": horizon.before,
            "since": horizon.since,
            "paused": self._location.pausing(pause.pattern for pause in self.pauses()),
        }

    # The plan.

    def plan(self, horizon: Horizon, slicing: Slicing) -> Slices:
        """Slices of equal size by (Due, place), however many messages share one Due."""
        with self._at.looking_at_all():
            rows = self._session.rows(
                "plan_bounds",
                **self._pending(horizon),
                slices=slicing.slices,
                least_rows=slicing.least_rows,
                most_rows=slicing.most_rows,
            )
        if not rows:
            return Slices(self._claim_keys_query(horizon), ())
        planned = _cut(rows[0].total, rows[0].size)
        ends = (*rows[: len(planned)], rows[-1])
        return Slices(self._claim_keys_query(horizon, ends), planned)

    def plan_at_once(self, horizon: Horizon, slicing: Slicing, most: int) -> Slices | None:
        """In one statement, which stops reading after one message more than `most`."""
        stored = estimated_rows(self._session, self._delayed)
        # It would read in vain.
        if stored > most and self.count_pending(horizon, most + 1) > most:
            return None
        query = self._claim_keys_query(horizon, most=most + 1)
        with self._at.patient(stored):
            rows = self._session.named({"query": query, "slice": "0"}).rows("read_slice")
        found = rows[0].total or 0
        if found > most:
            return None
        size = -(-len(rows) // slicing.count(found))
        slices = [rows[at : at + size] for at in range(0, len(rows), size)]
        return Slices(query, _cut(found, size * _CHUNK_ROWS), read=slices)

    def plan_sql(self, horizon: Horizon) -> str:
        """The query of a plan with one slice."""
        return self._claim_keys_query(horizon)

    def claim_keys(self, plan: Slices, number: int) -> Sequence[Any]:
        if plan.read:
            return plan.read[plan.begin + number]
        names = {"query": plan.claim_keys_query, "slice": str(plan.begin + number)}
        with self._at.patient(plan.planned[number]):
            return self._session.named(names).rows("read_slice")

    def _claim_keys_query(
        self, horizon: Horizon, ends: Sequence[Any] = (), most: int = _ALL
    ) -> str:
        bounds = self._dialect.bounds(self._kind, horizon.since, ends)
        pending = self._pending(horizon)
        # The bounds have it.
        del pending["since"]
        return self._session.named({**self._session.names, "bounds": bounds}).query(
            "plan_claim_keys", **pending, most=most, chunk=_CHUNK_ROWS
        )


def next_due(statements: Session, since: datetime | None, zone: str) -> datetime | None:
    """The instant of the first Due from `since` on; None as `since`: of all."""
    due = statements.row("next_due", since=since, zone=zone).due
    return due and aware(due)


def _cut(total: int, size: int) -> tuple[int, ...]:
    """How many of `total` messages each slice has; all but the last have the same `size`."""
    return tuple(min(size, total - start) for start in range(0, total, size))
