"""PostgreSQL as a dialect of the relational store: messages are found by their keys."""
# ruff: noqa: ARG002 - no dialect needs all that another one does

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

from duesweep.core.address import TableName
from duesweep.core.errors import UnusualBatchError
from duesweep.core.message import Address, Failed, Message
from duesweep.core.policy import Limits
from duesweep.drivers.postgresql.errors import row_errors
from duesweep.drivers.postgresql.session import PostgreSqlSession, connect
from duesweep.drivers.postgresql.start import literal
from duesweep.drivers.postgresql.wire import (
    PlaceArray,
    UuidArray,
    array_text,
    instant_text,
    start_of_ids,
)
from duesweep.drivers.statements import Session
from duesweep.stores.checks_postgresql import POSTGRESQL_TABLES
from duesweep.stores.dialect import Begun, Claims, Dialect, Location, Locked, Values, numbered
from duesweep.stores.due import Horizon
from duesweep.stores.kinds import TableKind
from duesweep.stores.messages import NewMessage
from duesweep.stores.moved import Move
from duesweep.stores.sql_connection import begin_batch
from duesweep.stores.summary import Lateness
from duesweep.stores.sweeps import SweepRun
from duesweep.stores.task import Forwarded, LeftAlone, Selection, Table
from duesweep.stores.tombstone import Tombstones
from duesweep.stores.zone import horizon_in, zone_of

_BEFORE_ALL = "-infinity"
# Of a claim key, the message's own key.
_KEY_LENGTH = 36
_TURN_WAIT = "10s"
# A session that waits for a row holds others. NServiceBus's mover holds its rows for about 5 ms.
_MOVE_WAIT = "20ms"
# A client that sends nothing for this time is frozen, and the messages that it has locked are due.
_IDLE_WAIT = "2s"
# A character that JSON never has stands between the headers of two moved messages.
_BETWEEN = "\x1f"
# Stands for the instant of an infinite Due.
_NEVER = -(2**63)
# The first and the last place that a row can have.
_FIRST_PLACE, _LAST_PLACE = "(0,0)", "(4294967295,65535)"


class ClaimsByKey(Claims):
    """A key leads to its own message only, and the plan has it once, so nothing is remembered. In a
    claim key of the plan, the place of the row follows the key.
    """

    can_move = True

    def __init__(self, session: PostgreSqlSession, location: Location, delayed: TableName) -> None:
        self._statements = session.named(location.names(delayed))
        self._source = location.source
        self._location = location
        self._delayed = str(delayed)

    def lock(
        self,
        run: SweepRun,
        claim_keys: Sequence[str],
        paused: Sequence[str],
        left_alone: LeftAlone,
    ) -> Locked:
        keys = _keys(claim_keys)
        values = {"keys": UuidArray.of(keys), **_claim_values(run.horizon)}
        rows = self._statements.rows("claim", **values)
        return replace(self._unclaimed(run, keys, [row.id for row in rows]), rows=rows)

    def select(
        self, run: SweepRun, groups: Sequence[Forwarded], left_alone: LeftAlone
    ) -> Selection:
        """By the plan alone: the server is not asked."""
        address_of = self._location.kind.address_of
        return Selection([address_of(_known(group)) for group in groups], groups)

    def move(
        self, run: SweepRun, selection: Selection, tables: Mapping[Address, Table]
    ) -> tuple[Begun, Tombstones, Locked]:
        groups: Sequence[Forwarded] = selection.rest
        moves = [
            Move.to(self._location, _known(group), address, tables[address])
            for group, address in zip(groups, selection.addresses, strict=True)
        ]
        usual_wait = f"{self._statements.limits.lock_seconds * 1_000:.0f}"
        _, fence, _, *rows, [hooks], _ = self._statements.rows_of_each(
            "move",
            ("set_lock_wait", {"wait": _MOVE_WAIT}, {}),
            ("fence", {"sweep_id": run.sweep_id}, {}),
            ("check_constraints_at_once", {}, {}),
            *(
                (*_found(group.keys, run.horizon, move), {"queue": str(move.queue)})
                for move, group in zip(moves, groups, strict=True)
            ),
            ("find_delete_hooks", {"delayed": self._delayed}, {}),
            ("set_lock_wait", {"wait": usual_wait}, {}),
        )
        begun = begin_batch(self._statements, self._source, run, fence)
        if hooks.found:
            raise UnusualBatchError("a trigger or a rule changes the removed rows")
        moved = Tombstones()
        for move, [row] in zip(moves, rows, strict=True):
            moved.add(_moved(move, row))
        keys = [key for group in groups for key in _keys(group.keys)]
        if not set(keys).issuperset(moved.keys):
            raise UnusualBatchError("other messages are in the places of the planned ones")
        # The time after the move, which may have waited.
        begun = begun._replace(server_us=hooks.server_us)
        return begun, moved, self._unclaimed(run, keys, moved.keys)

    def _unclaimed(self, run: SweepRun, keys: Sequence[str], claimed: Sequence[str]) -> Locked:
        """The outcomes of the keys that led to no message."""
        if len(claimed) == len(keys):
            return Locked()
        found = set(claimed)
        missing = [key for key in keys if key not in found]
        values = {"keys": UuidArray.of(missing), "horizon": run.horizon.before}
        row = self._statements.row("explain_unclaimed", **values)
        gone = len(missing) - row.skipped - row.later
        return Locked(skipped=row.skipped, gone=gone, later=row.later)

    def remove(self, messages: Sequence[Message]) -> int:
        return self._statements.execute("remove", keys=UuidArray.of([m.key for m in messages]))

    def fail(self, failed: Failed) -> Values:
        return {"retry_seconds": failed.retry_seconds}

    def stored(self, message: Message) -> Values:
        """Nothing: the server copies headers and body."""
        return {}

    def lock_next(self, zone: str | None) -> Sequence[Any]:
        horizon = horizon_in(zone or "UTC", self._statements)
        return self._statements.rows(
            "fetch_next_due",
            horizon=horizon.before,
            source=self._source,
            **_instant_values(horizon),
        )

    def is_there(self, message: Message) -> bool:
        return bool(self._statements.rows("find_message", key=message.key))

    def store(self, message: NewMessage, zone: str | None) -> str:
        """In a transaction, whose zone becomes the writers', as the statement needs it."""
        self._statements.row("set_zone", zone=zone or "UTC")
        return self._store(message)

    def _store(self, message: NewMessage) -> str:
        due = message.due if message.instant_us is None else instant_text(message.instant_us)
        return self._location.store_row(self._statements, message, due)

    def put_back(
        self, messages: Sequence[NewMessage], zone: str | None
    ) -> Sequence[tuple[str, int]]:
        before = self._statements.row("session_zone").zone
        self._statements.row("set_zone", zone=zone or "UTC")
        with row_errors():
            keys = [self._store(message) for message in messages]
        self._statements.row("set_zone", zone=before)
        found = {"keys": UuidArray.of(keys), "zone": zone or "UTC"}
        rows = self._statements.rows("read_instants", **found)
        instants = {row.id: row.instant_us for row in rows}
        return [(key, instants[key]) for key in keys]

    def hold(self, lock_keys: Sequence[str], zone: str | None) -> Sequence[Any]:
        return self._statements.rows("hold", keys=UuidArray.of(lock_keys), zone=zone or "UTC")

    def count_present(self, lock_keys: Sequence[str]) -> int:
        return int(self._statements.row("count_present", keys=UuidArray.of(lock_keys)).present)

    def set_due(
        self, messages: Sequence[tuple[Message, datetime]], zone: str | None
    ) -> Mapping[str, int]:
        rows = self._statements.rows(
            "reschedule",
            zone=zone or "UTC",
            keys=UuidArray.of([message.key for message, _ in messages]),
            dues=[due for _, due in messages],
        )
        return {row.id: row.instant_us for row in rows}


@dataclass(frozen=True, slots=True)
class PostgreSql(Dialect):
    """Dues are compared in the writers' time zone, arrays are sent in one statement."""

    statements = "postgresql"
    tables = POSTGRESQL_TABLES
    claims = ClaimsByKey

    def connect(self, dsn: str, limits: Limits) -> PostgreSqlSession:
        return connect(dsn, limits)

    def lock(self, name: str) -> Values:
        """An advisory lock's key: 64 bits, so that others' keys are not met by chance."""
        digest = hashlib.sha256(name.encode()).digest()
        return {"lock_key": int.from_bytes(digest[:8], signed=True)}

    def holder(self, session: Session, name: str) -> str | None:
        """The process and since when its session has been idle; a frozen process is also idle."""
        rows = session.rows("lock_holder", **self.lock(name))
        if not rows or rows[0].idle_since is None:
            return None
        _, _, process = rows[0].application.partition("duesweep, process ")
        named = f"Process {process}" if process else "Another process"
        return f"{named}, whose session has been idle since {rows[0].idle_since:%F %T} UTC,"

    def locker(self, row: Any) -> tuple[str | None, datetime | None]:
        if row.prepared is not None:
            return f"prepared transaction {row.prepared!r} of role {row.role}", row.since
        named = f" ({row.application})" if row.application else ""
        return f"session {row.pid}{named} of role {row.role}", row.since

    def await_batches(self, session: Session, source: str, sweep_id: UUID, *, waits: bool) -> bool:
        name = "await_batches" if waits else "are_batches_over"
        return bool(session.rows(name, sweep_id=sweep_id))

    def prune_attempts(self, session: Session, source: str) -> int:
        return session.execute("prune_attempts", source=source)

    def lateness(self, session: Session, sweep_id: UUID) -> Lateness:
        row = session.row("lateness", sweep_id=sweep_id)
        return Lateness(row.p50, row.p95, row.longest)

    def keys(self, keys: Iterable[str]) -> Values:
        return {"keys": UuidArray.of(list(keys))}

    def due_in(self, due: datetime | None) -> str:
        return _BEFORE_ALL if due is None else due.astimezone(UTC).isoformat()

    def due_out(self, due: datetime | None) -> datetime | None:
        return due

    def moment(self, moment: datetime | None) -> object:
        return moment

    def zoned(self, zone: str | None) -> Values:
        return {"zone": zone or "UTC"}

    def span(self, first: datetime | None, end: datetime | None, zone: str | None) -> Values:
        return {"first": first, "last": end, **self.zoned(zone)}

    def buckets(self, ends: Sequence[datetime], zone: str | None) -> Values:
        return {"ends": list(ends), **self.zoned(zone)}

    def pausing(self, location: Location, pattern: str) -> list[object]:
        return list(location.kind.pausing(pattern, location.addresses.default_schema))

    def bounds(self, kind: TableKind, since: datetime | None, ends: Sequence[Any] = ()) -> str:
        """And whether the slice is read by place: all of it is in one Due, and on fewer pages than
        this Due has messages, all of which the index would lead to. The first and the last slice
        are open: a row that an UPDATE or VACUUM FULL moves is still in a slice.
        """
        inner = [(row.due, row.place) for row in ends[1:-1]]
        bounds = [(self.due_in(since), _FIRST_PLACE), *inner, ("infinity", _LAST_PLACE)]
        begun = Counter(row.due for row in ends[:-1] if row.has_ranges)
        page_bounds = [0, *(_page(place) for _, place in inner), ends[-1].pages if ends else 0]
        spans = []
        for number, ((due, first), (end_due, end)) in enumerate(pairwise(bounds)):
            pages = page_bounds[number + 1] - page_bounds[number]
            in_one = bool(ends) and ends[number].due == ends[number + 1].due
            by_place = in_one and pages < begun[ends[number].due] * ends[0].size
            start = ends[number].due if by_place else due
            at = [
                f"{literal(each)}::{kind.names['due_type']}, {literal(place)}::tid"
                for each, place in ((start, first), (end_due, end))
            ]
            spans.append(f"{', '.join(at)}, {str(by_place).lower()}")
        return numbered(spans)

    def zone(self, session: Session, location: Location) -> str | None:
        return zone_of(session, location)

    def horizon(self, session: Session, zone: str | None) -> Horizon:
        return horizon_in(zone or "UTC", session)

    @contextmanager
    def stream(
        self, session: Session, location: Location, seconds: float, *, is_ordered: bool
    ) -> Iterator[Session]:
        """By a cursor of the same session, in a transaction."""
        with session.wait_longer(seconds):
            if is_ordered:
                session.row("set_first_rows_fast")
            yield session

    def key(self, row: Any) -> str:
        key: str = row.id
        return key

    def message(self, kind: TableKind, row: Any, attempts: int) -> Message:
        return kind.read_message(row.id, row.due_us, row.instant_us, row, attempts)

    def count_exhausted(self, session: Session, sweep_id: UUID) -> int | None:
        # Another slice's batch, which is waited for, may take its time; a row's lock may not.
        wait = session.row("set_lock_wait", wait=_TURN_WAIT)
        row = session.row("lock_sweep_counters", sweep_id=sweep_id)
        session.row("set_lock_wait", wait=wait.before)
        return int(row.exhausted)

    def late(self, late_ms: Sequence[int]) -> object:
        return array_text(map(str, late_ms))

    def execute_rows(
        self, session: Session, name: str, same: Mapping[str, object], rows: Sequence[Values]
    ) -> None:
        """All in one statement, as arrays: one for each would take several times as long."""
        if rows:
            arrays = {column: [row[column] for row in rows] for column in rows[0]}
            session.execute(name, **same, **arrays)

    def expect_no_idle_client(self, session: Session) -> None:
        session.row("set_idle_wait", wait=_IDLE_WAIT)


POSTGRESQL = PostgreSql()


def _known(group: Forwarded) -> str:
    if group.forward is None:
        raise UnusualBatchError("the destinations are not known")
    return group.forward


def _page(place: str) -> int:
    return int(place[1:].partition(",")[0])


def _moved(move: Move, row: Any) -> Tombstones:
    """The messages of the row that the statement `move` returned.

    Raises `UnusualBatchError` if one of them, or the queue, is unusual.
    """
    count: int = row.messages
    if not count:
        return Tombstones()
    if row.arrived != count:
        raise UnusualBatchError(f"{move.queue} took {row.arrived} of {count} messages")
    texts = row.headers.split(_BETWEEN) if row.have_one_destination else ()
    if len(texts) != count:
        raise UnusualBatchError("headers are no JSON, or have another destination")
    instants_us = [None if us == _NEVER else us for us in _numbers(row.instants_us)]
    return move.tombstones(row.keys.split(","), texts, instants_us, _numbers(row.body_bytes))


def _numbers(sent: bytes) -> list[int]:
    """Numbers of eight bytes, in the server's order."""
    numbers = array("q", sent)
    numbers.byteswap()
    return numbers.tolist()


def _keys(claim_keys: Sequence[str]) -> list[str]:
    return [claim_key[:_KEY_LENGTH] for claim_key in claim_keys]


def _found(claim_keys: Sequence[str], horizon: Horizon, move: Move) -> tuple[str, Values]:
    """The statement that moves these messages, and its values."""
    values = {
        **_claim_values(horizon),
        "destination": move.forward if move.kind.has_destination else "",
        "tail": move.tail,
        "end": move.end,
        "never": _NEVER,
        "time": start_of_ids(),
    }
    if min(map(len, claim_keys)) > _KEY_LENGTH:
        places = PlaceArray.of([claim_key[_KEY_LENGTH:] for claim_key in claim_keys])
        return "move_from_places", {"places": places, **values}
    return "move", {"keys": UuidArray.of(_keys(claim_keys)), **values}


def _claim_values(horizon: Horizon) -> Values:
    return {"horizon": horizon.before, **_instant_values(horizon)}


def _instant_values(horizon: Horizon) -> Values:
    """The values by which the server makes an instant of a Due.

    Without looking ahead only due messages are claimed, so no instant may be later than the sweep's
    own time. In the hour of a clock change the zone's rules alone could name a later one.
    """
    latest = None if horizon.ahead else horizon.server_time
    return {"zone": horizon.zone or "UTC", "latest": latest}
