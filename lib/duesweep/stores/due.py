"""The driver's session on a relational store: due messages, for sweeps and for people."""

import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from datetime import datetime, timedelta
from typing import Any, Self
from uuid import UUID

from duesweep.core.change import DueSpan, WaitingMessage
from duesweep.core.errors import Problem
from duesweep.core.policy import Slicing
from duesweep.core.world import instant_of
from duesweep.drivers.statements import Session
from duesweep.stores.base import (
    Failing,
    Horizon,
    JdbcSource,
    LockedRows,
    OperatorDriver,
    Slices,
    SweepRun,
    Work,
)
from duesweep.stores.dialect import Location
from duesweep.stores.journal import SqlJournal
from duesweep.stores.summary import aware
from duesweep.stores.tables import (
    check_reading,
    check_tables,
    missing_index,
    refuse_hidden_rows,
)

_ALL = 2**62
# More than any server rounds a Due: a message must not be left out because of that.
_ROUNDING = timedelta(milliseconds=10)
# How many messages, or keys, are read at a time: a page.
_PAGE_ROWS = 1_000
# How many messages a row of a plan has.
_CHUNK_ROWS = 1_000
_KEYS_PER_PAGE = 20_000


class SqlDriver(SqlJournal, OperatorDriver):
    """Its sweep lives as long as this session. It knows destinations, unless they are in the
    headers.
    """

    def __init__(self, session: Session, location: Location) -> None:
        super().__init__(session, location)
        self._kind = location.kind
        # How many messages each slice of its open sweeps was planned with.
        self._planned: dict[UUID, list[int]] = {}
        # How many messages were noted last.
        self._found = 0
        # Whether any message was due when `next_due` looked.
        self._has_due = True

    def __enter__(self) -> Self:
        return self

    def check(self) -> None:
        check_tables(self._session, self._location, self._delayed)
        self.jdbc()

    def check_sight(self) -> None:
        refuse_hidden_rows(self._session, self._location, self._delayed)

    def check_reading(self) -> None:
        check_reading(self._session, self._location, self._delayed)

    def jdbc(self) -> JdbcSource:
        seconds = self._location.timeouts.read_seconds(self._found)
        return JdbcSource(*self._session.jdbc_address(seconds, self._location.jdbc_url))

    # Due messages.

    def find_work(self, ahead: timedelta) -> Work | None:
        horizon = self.horizon().looking_ahead(ahead)
        pending = {
            "source": self.source,
            "horizon": self._dialect.due_in(horizon.before),
            "paused": self._pausing(),
        }
        if found := self._session.rows("find_pending", **pending):
            first = self._dialect.due_out(found[0].due)
            return Work(None if first is None else first - _ROUNDING)
        if self._session.row("find_gone_attempts", source=self.source).found:
            return Work()
        is_unsettled = any(not self.still_alive(one.sweep_id) for one in self.unsettled())
        return Work() if is_unsettled else None

    def next_due(self, horizon: Horizon) -> datetime | None:
        row = _earliest(self._location, self._session, horizon.before, horizon.zone)
        self._has_due = bool(row.has_earlier)
        return self._dialect.due_out(row.due)

    def failing(self, horizon: Horizon) -> Failing | None:
        if not self._has_due:
            return None
        before = self._dialect.due_in(horizon.before)
        row = self._session.row("count_failing", source=self.source, horizon=before)
        return Failing(int(row.messages), aware(row.next_attempt)) if row.messages else None

    def locked(self, horizon: Horizon) -> Sequence[LockedRows]:
        rows = self._session.rows("locked_rows", horizon=self._dialect.due_in(horizon.before))
        found = []
        for row in rows:
            due = self._dialect.due_out(row.due)
            if row.messages > 0 and due is not None:
                seconds = (horizon.before - due).total_seconds()
                holder, since = self._dialect.locker(row)
                found.append(LockedRows(int(row.messages), holder, since, seconds))
        return found

    def count_pending(self, horizon: Horizon, most: int | None = None) -> int:
        pending = self._pending(horizon)
        with self._looking_at_all():
            row = self._session.row("count_pending", **pending, most=most or _ALL)
        return int(row.pending)

    def count_stored(self, since: datetime | None) -> int:
        with self._looking_at_all():
            if since is None:
                return int(self._session.row("count_stored").stored)
            due = self._dialect.due_in(since)
            return int(self._session.row("count_stored_since", since=due).stored)

    def destinations(self, horizon: Horizon | None) -> Sequence[str]:
        if not self._kind.has_destination:
            return ()
        if horizon is not None:
            rows = self._session.rows("due_destinations", **self._pending(horizon))
        else:
            with self._looking_at_all():
                rows = self._session.rows("stored_destinations")
        return [row.destination for row in rows]

    def notices(self) -> Sequence[Problem]:
        """Messages that are never due, since they have no Due."""
        if not self._kind.may_lack_due:
            return ()
        timeless = self._session.row("count_timeless").timeless
        if not timeless:
            return ()
        return (
            Problem(
                f"{timeless} messages in {self._delayed.sql} have no "
                f"{self._kind.due}, so they never come due",
                "give them one, or remove them",
            ),
        )

    def table_notices(self) -> Sequence[Problem]:
        if self._dialect.tables.index_creation is None:
            return ()
        missing = missing_index(self._session, self._location, self._delayed)
        return () if missing is None else (missing,)

    def _pending(self, horizon: Horizon) -> dict[str, object]:
        """The values by which statements find eligible messages."""
        return {
            "source": self.source,
            "horizon": self._dialect.due_in(horizon.before),
            "since": self._dialect.due_in(horizon.since),
            "paused": self._pausing(),
        }

    def _pausing(self) -> str:
        """The pauses in force as JSON, in the form that statements test. A row that they do not
        fit may be paused nevertheless: its claim tells.
        """
        pauses = self.pauses()
        return json.dumps(
            [
                like
                for pause in pauses
                for like in self._dialect.pausing(self._location, pause.pattern)
            ]
        )

    # The plan.

    def plan(self, horizon: Horizon, slicing: Slicing) -> Slices:
        """Slices of equal size by (Due, place), however many messages share one Due."""
        with self._looking_at_all():
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
        stored = self._estimated_rows()
        # It would read in vain.
        if stored > most and self.count_pending(horizon, most + 1) > most:
            return None
        query = self._claim_keys_query(horizon, most=most + 1)
        with self._patient(stored):
            rows = self._session.named({"query": query, "slice": "0"}).rows("read_slice")
        found = rows[0].total or 0
        if found > most:
            return None
        size = -(-len(rows) // slicing.count(found))
        slices = [rows[at : at + size] for at in range(0, len(rows), size)]
        return Slices(query, _cut(found, size * _CHUNK_ROWS), read=slices)

    def note_slices(self, run: SweepRun, plan: Slices) -> int:
        self._found = plan.found
        noted = self._planned.setdefault(run.sweep_id, [])
        before = len(noted)
        noted += plan.planned
        self._session.execute(
            "set_planned", sweep_id=run.sweep_id, planned=noted, horizon=run.horizon.before
        )
        return before

    def plan_sql(self, horizon: Horizon) -> str:
        """The query of a plan with one slice, and below it the values that its names stand for."""
        values = self._of_claim_keys(horizon)
        values["bounds"] = self._dialect.bounds(self._kind, horizon.since)
        query = self._naming({name: f":{name}" for name in values}).query("plan_claim_keys")
        return "\n".join([query, *(f":{name} = {value}" for name, value in values.items())])

    def claim_keys(self, plan: Slices, number: int) -> Sequence[Any]:
        if plan.read:
            return plan.read[plan.begin + number]
        names = {"query": plan.claim_keys_query, "slice": str(plan.begin + number)}
        with self._patient(plan.planned[number]):
            return self._session.named(names).rows("read_slice")

    def _claim_keys_query(
        self, horizon: Horizon, ends: Sequence[Any] = (), most: int = _ALL
    ) -> str:
        bounds = self._dialect.bounds(self._kind, horizon.since, ends)
        values = self._of_claim_keys(horizon, most)
        return self._naming({"bounds": bounds}).query("plan_claim_keys", **values)

    def _naming(self, names: dict[str, str]) -> Session:
        return self._session.named({**self._session.names, **names})

    def _of_claim_keys(self, horizon: Horizon, most: int = _ALL) -> dict[str, str]:
        return {
            "source": self.source,
            "horizon": self._dialect.due_in(horizon.before),
            "paused": self._pausing(),
            "most": str(most),
            "chunk": str(_CHUNK_ROWS),
        }

    # What people are shown.

    @contextmanager
    def look(self, span: DueSpan) -> Iterator[Iterator[Sequence[WaitingMessage]]]:
        values = self._dialect.span(span.start, span.end, self._writers_zone())
        with (
            self._stream(is_ordered=True) as stream,
            closing(self._pages_of(stream, span, values)) as pages,
        ):
            yield pages

    def _pages_of(
        self, stream: Session, span: DueSpan, values: dict[str, object]
    ) -> Generator[Sequence[WaitingMessage]]:
        with stream.pages("look", _PAGE_ROWS, values) as pages:
            yield from map(self._waiting, pages)
        if self._kind.may_lack_due and span.end is None:
            with stream.pages("look_timeless", _PAGE_ROWS, {}) as pages:
                yield from map(self._waiting, pages)

    def find(self, keys: Sequence[str], *, with_body: bool = False) -> Sequence[WaitingMessage]:
        zoned = self._dialect.zoned(self._writers_zone())
        readable = filter(None, map(self._kind.as_key, keys))
        with nullcontext() if self._kind.has_indexed_key else self._looking_at_all():
            rows = self._session.rows(
                "find", with_body=with_body, **zoned, **self._dialect.keys(readable)
            )
            return self._waiting(rows)

    def count_waiting(self, ends: Sequence[datetime]) -> Sequence[int]:
        values = self._dialect.buckets(ends, self._writers_zone())
        with self._looking_at_all():
            rows = self._session.rows("count_buckets", **values)
        counts = {row.bucket: int(row.messages) for row in rows}
        # Messages without a Due come last.
        counts[len(ends)] = counts.get(len(ends), 0) + counts.get(None, 0)
        return [counts.get(bucket, 0) for bucket in range(len(ends) + 1)]

    def _waiting(self, rows: Sequence[Any]) -> list[WaitingMessage]:
        keys = [self._dialect.key(row) for row in rows]
        found = self._session.rows("read_failures", source=self.source, **self._dialect.keys(keys))
        failures = {row.message_key: row for row in found}
        return [
            self._one_waiting(row, failures.get(key)) for key, row in zip(keys, rows, strict=True)
        ]

    def _one_waiting(self, row: Any, failure: Any) -> WaitingMessage:
        message = self._dialect.message(self._kind, row, failure.attempts if failure else 0)
        due = None if message.instant_us is None else instant_of(message.instant_us)
        lock_key = self._dialect.lock_key(self._kind, row)
        waiting = WaitingMessage(message, lock_key, due, row.body_bytes)
        if failure is None:
            return waiting
        return waiting._replace(
            next_attempt_at=self._dialect.due_out(failure.next_attempt_at),
            error=failure.error_text,
        )

    # The facts that the audit compares with the ledger; see `AuditedStore`.

    @contextmanager
    def keys(self) -> Iterator[Iterator[Sequence[str]]]:
        with self._stream() as stream, stream.pages("stored_keys", _KEYS_PER_PAGE, {}) as pages:
            yield ([row.message_key for row in page] for page in pages)

    def _stream(self, *, is_ordered: bool = False) -> AbstractContextManager[Session]:
        seconds = self._location.timeouts.plan_seconds(self._estimated_rows())
        return self._dialect.stream(self._session, self._location, seconds, is_ordered=is_ordered)


def next_due(
    location: Location, statements: Session, since: datetime | None, zone: str | None
) -> datetime | None:
    """The instant of the first Due from `since` on; None as `since`: of all."""
    return location.dialect.due_out(_earliest(location, statements, since, zone).due)


def _earliest(
    location: Location, statements: Session, since: datetime | None, zone: str | None
) -> Any:
    dialect = location.dialect
    return statements.row("next_due", since=dialect.due_in(since), **dialect.zoned(zone))


def _cut(total: int, size: int) -> tuple[int, ...]:
    """How many of `total` messages each slice has; all but the last have the same `size`."""
    return tuple(min(size, total - start) for start in range(0, total, size))
