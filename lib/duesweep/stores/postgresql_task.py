"""A slice's session on PostgreSQL: messages are found by their keys, and moved by one statement for
each destination.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from duesweep.core.errors import UnusualBatchError, refuse_dropped
from duesweep.core.message import Address, Failed, Message
from duesweep.drivers.postgresql.errors import row_errors, unusual_errors
from duesweep.drivers.postgresql.session import PostgreSqlSession
from duesweep.drivers.postgresql.wire import Places, instant_text, start_of_ids
from duesweep.drivers.statements import Keys
from duesweep.stores.dialect import Values
from duesweep.stores.due import Horizon
from duesweep.stores.messages import NewMessage
from duesweep.stores.moved_headers import HeaderCut
from duesweep.stores.sql_task import Begun, Locked, SqlTask
from duesweep.stores.sweeps import SweepRun
from duesweep.stores.task import NOBODY, Forwarded, LeftAlone, Moved, Selection, Table
from duesweep.stores.tombstone import Tombstones
from duesweep.stores.zone import horizon_in

# Of a claim key, the message's own key.
_KEY_LENGTH = 36
# A session that waits for a row holds others. NServiceBus's mover holds its rows for about 5 ms.
_MOVE_WAIT = "20ms"
_TURN_WAIT = "10s"
# A character that JSON never has stands between the headers of two moved messages.
_BETWEEN = "\x1f"
# Stands for the instant of an infinite Due.
_NEVER = -(2**63)


class PostgreSqlTask(SqlTask):
    """A key leads to its own message only, and the plan has it once, so nothing is remembered. In a
    claim key of the plan, the place of the row follows the key.
    """

    statements: PostgreSqlSession
    can_move = True

    @contextmanager
    def select(
        self,
        run: SweepRun,  # noqa: ARG002 - the server is not asked
        groups: Sequence[Forwarded],
        left_alone: LeftAlone = NOBODY,  # noqa: ARG002 - each key has one message
    ) -> Iterator[Selection]:
        """By the plan alone."""
        known = [(one.forward, one.keys) for one in groups if one.forward is not None]
        if len(known) < len(groups):
            raise UnusualBatchError("the destinations are not known")
        with self.transaction():
            yield Selection([self._kind.address_of(forward) for forward, _ in known], known)

    def move(self, run: SweepRun, selection: Selection, tables: Mapping[Address, Table]) -> Moved:
        groups: Sequence[tuple[str, Sequence[str]]] = selection.rest
        cuts = [
            HeaderCut.of(self._location, forward, address, tables[address])
            for (forward, _), address in zip(groups, selection.addresses, strict=True)
        ]
        usual_wait = f"{self.statements.waits.lock_seconds * 1_000:.0f}"
        with unusual_errors():
            _, fence, _, *rows, [hooks], _ = self.statements.rows_of_each(
                ("set_lock_wait", {"wait": _MOVE_WAIT}, {}),
                ("fence", {"sweep_id": run.sweep_id}, {}),
                ("check_constraints_at_once", {}, {}),
                *(
                    (*_move_statement(claim_keys, run.horizon, cut), {"queue": str(cut.queue)})
                    for cut, (_, claim_keys) in zip(cuts, groups, strict=True)
                ),
                ("find_delete_hooks", {"delayed": str(self._delayed)}, {}),
                ("set_lock_wait", {"wait": usual_wait}, {}),
                what="move",
            )
        begun = self.begun(run, fence)
        if hooks.found:
            raise UnusualBatchError("a trigger or a rule changes the removed rows")
        moved = Tombstones()
        for cut, [row] in zip(cuts, rows, strict=True):
            moved.add(_tombstones(cut, row))
        keys = [key for _, claim_keys in groups for key in _keys(claim_keys)]
        if not set(keys).issuperset(moved.keys):
            raise UnusualBatchError("other messages are in the places of the planned ones")
        # The time after the move, which may have waited.
        begun = begun._replace(server_us=hooks.server_us)
        return self.checked_move(begun, moved, self._unclaimed(run, keys, moved.keys))

    def lock(
        self,
        run: SweepRun,
        claim_keys: Sequence[str],
        begun: Begun,  # noqa: ARG002 - the caller holds paused ones back
        left_alone: LeftAlone,  # noqa: ARG002 - each key has one message
    ) -> Locked:
        keys = _keys(claim_keys)
        values = {"keys": Keys(keys), **_claim_values(run.horizon)}
        rows = self.statements.rows("claim", **values)
        return replace(self._unclaimed(run, keys, [row.message_key for row in rows]), rows=rows)

    def _unclaimed(self, run: SweepRun, keys: Sequence[str], claimed: Sequence[str]) -> Locked:
        """The outcomes of the keys that led to no message."""
        if len(claimed) == len(keys):
            return Locked()
        found = set(claimed)
        missing = [key for key in keys if key not in found]
        values = {"keys": Keys(missing), "horizon": run.horizon.before}
        row = self.statements.row("explain_unclaimed", **values)
        gone = len(missing) - row.skipped - row.later
        return Locked(skipped=row.skipped, gone=gone, later=row.later)

    def delete(self, messages: Sequence[Message]) -> int:
        return self.statements.execute("remove", keys=Keys([m.key for m in messages]))

    def failure(self, failed: Failed) -> Values:
        return {"retry_seconds": failed.retry_seconds}

    def count_exhausted(self, sweep_id: UUID) -> int | None:
        # Another slice's batch, which is waited for, may take its time; a row's lock may not.
        wait = self.statements.row("set_lock_wait", wait=_TURN_WAIT)
        row = self.statements.row("lock_sweep_counters", sweep_id=sweep_id)
        self.statements.row("set_lock_wait", wait=wait.before)
        return int(row.exhausted)

    def late(self, late_ms: Sequence[int]) -> object:
        # Much faster than to adapt each number.
        return "{" + ",".join(map(str, late_ms)) + "}"

    def write_rows(self, name: str, same: Mapping[str, object], rows: Sequence[Values]) -> None:
        """All in one statement, as arrays: one for each would take several times as long."""
        if rows:
            arrays = {column: [row[column] for row in rows] for column in rows[0]}
            self.statements.execute(name, **same, **arrays)

    def lock_next(self, zone: str) -> Sequence[Any]:
        values = _claim_values(horizon_in(self.statements, zone))
        return self.statements.rows("fetch_next_due", source=self.source, **values)

    def hold(self, lock_keys: Sequence[str], zone: str) -> Sequence[Any]:
        return self.statements.rows("hold", keys=Keys(lock_keys), zone=zone)

    def count_present(self, lock_keys: Sequence[str]) -> int:
        return int(self.statements.row("count_present", keys=Keys(lock_keys)).present)

    def set_due(self, messages: Sequence[tuple[Message, datetime]], zone: str) -> Mapping[str, int]:
        rows = self.statements.rows(
            "reschedule",
            zone=zone,
            keys=Keys([message.key for message, _ in messages]),
            dues=[due for _, due in messages],
        )
        return {row.message_key: row.instant_us for row in rows}

    def put_back(self, messages: Sequence[NewMessage], zone: str) -> Sequence[tuple[str, int]]:
        dues = [
            message.due if message.instant_us is None else instant_text(message.instant_us)
            for message in messages
        ]
        before = self.statements.row("session_zone").zone
        self.statements.row("set_zone", zone=zone)
        with row_errors():
            keys = [
                self._location.store_row(self.statements, message, due)
                for message, due in zip(messages, dues, strict=True)
            ]
        self.statements.row("set_zone", zone=before)
        found = {"keys": Keys(keys), "zone": zone}
        rows = self.statements.rows("read_instants", **found)
        instants = {row.message_key: row.instant_us for row in rows}
        refuse_dropped("The delayed table", len(instants), len(keys))
        return [(key, instants[key]) for key in keys]


def _tombstones(cut: HeaderCut, row: Any) -> Tombstones:
    """The messages of the row that the statement `move` returned.

    Raises `UnusualBatchError` if one of them, or the queue, is unusual.
    """
    count: int = row.messages
    if not count:
        return Tombstones()
    if row.arrived != count:
        raise UnusualBatchError(f"{cut.queue} took {row.arrived} of {count} messages")
    texts = row.headers.split(_BETWEEN) if row.have_one_destination else ()
    if len(texts) != count:
        raise UnusualBatchError("headers are no JSON, or have another destination")
    instants_us = [None if us == _NEVER else us for us in _numbers(row.instants_us)]
    return cut.tombstones(row.keys.split(","), texts, instants_us, _numbers(row.body_bytes))


def _numbers(sent: bytes) -> list[int]:
    """Numbers of eight bytes, in the server's order."""
    numbers = array("q", sent)
    numbers.byteswap()
    return numbers.tolist()


def _keys(claim_keys: Sequence[str]) -> list[str]:
    return [claim_key[:_KEY_LENGTH] for claim_key in claim_keys]


def _move_statement(
    claim_keys: Sequence[str], horizon: Horizon, cut: HeaderCut
) -> tuple[str, Values]:
    """The statement that moves these messages, and its values."""
    values = {
        **_claim_values(horizon),
        "destination": cut.forward if cut.kind.has_destination else "",
        "tail": cut.tail,
        "end": cut.end,
        "never": _NEVER,
        "time": start_of_ids(),
    }
    if min(map(len, claim_keys)) > _KEY_LENGTH:
        places = Places([claim_key[_KEY_LENGTH:] for claim_key in claim_keys])
        return "move_from_places", {"places": places, **values}
    return "move", {"keys": Keys(_keys(claim_keys)), **values}


def _claim_values(horizon: Horizon) -> Values:
    """The values by which the server finds due messages, and makes an instant of a Due.

    Without looking ahead only due messages are claimed, so no instant may be later than the sweep's
    own time. In the hour of a clock change the zone's rules alone could name a later one.
    """
    latest = None if horizon.ahead else horizon.server_time
    return {"horizon": horizon.before, "zone": horizon.zone, "latest": latest}
