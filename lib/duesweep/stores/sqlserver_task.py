"""A slice's session on SQL Server: messages are claimed and removed by their Due.

The transport's table is a heap with one index, on Due. To find rows by their keys is to look at
every row of their span of Due, and thousands may share one. So a claim key is a Due, and a batch
claims as many rows of each Due as it has claim keys, of the unlocked ones, and removes
many of one Due as its first. Tables whose keys are indexed are claimed in the same way, and their
rows removed by key.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from duesweep.core.account import SliceEnd, end_as_values
from duesweep.core.errors import StoreError, TransactionLostError, UnusualBatchError
from duesweep.core.message import Address, Failed, Message
from duesweep.core.policy import SCANNED_ROWS
from duesweep.core.world import StoreClock, micros
from duesweep.drivers.sqlserver.binding import bound_text, due_of, due_text
from duesweep.drivers.sqlserver.errors import row_errors, unusual_errors
from duesweep.drivers.sqlserver.session import SqlServerSession
from duesweep.drivers.statements import Keys, Named
from duesweep.stores.dialect import Location, Values, batches_lock
from duesweep.stores.forward import split_headers
from duesweep.stores.kinds import split_lock_key
from duesweep.stores.messages import NewMessage
from duesweep.stores.moved_headers import HeaderCut
from duesweep.stores.sql_task import FEW_COUNTERS, Begun, Locked, SqlTask
from duesweep.stores.summary import packed
from duesweep.stores.sweeps import SweepRun
from duesweep.stores.task import NOBODY, Forwarded, LeftAlone, Moved, Selection, Table
from duesweep.stores.tombstone import Tombstones

# This many messages of one Due are removed by their keys, more of them as the Due's first.
_FEW = 4
# A character beyond U+FFFF: the server's collation decides whether that is one or two.
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
# More inserts are sent one by one: in one text they would be another text in nearly each batch,
# which the server had to prepare again.
_MANY_DESTINATIONS = 16


@dataclass(slots=True)
class _Group:
    """Claimed rows with one destination: their keys, their headers up to the cut text, their
    instants in microseconds, and the sizes of their bodies.
    """

    keys: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    instants_us: list[int | None] = field(default_factory=list)
    body_bytes: list[int] = field(default_factory=list)


class _Span(NamedTuple):
    """A batch that has begun, the server's clock, the span of its Dues, its rows by their
    destination as it is written, and the other claim keys.
    """

    begun: Begun
    clock: StoreClock
    span: Values
    groups: Sequence[tuple[str, _Group]]
    unclaimed: Locked


class _Move(NamedTuple):
    """The span of Dues that a batch moves, its tables' names, an INSERT for each queue, and whether
    the source had retry counters.
    """

    span: Values
    tables: Sequence[str]
    inserts: Sequence[Named]
    has_counters: bool


class _OthersRemovedError(Exception):
    """Rows that were not claimed came among the first of a Due: go back, and remove by key."""


class SqlServerTask(SqlTask):
    """It remembers one claim: its rows, whose Dues, to the tick, find them again, and the messages
    that it excluded.
    """

    statements: SqlServerSession
    can_move = True

    def __init__(self, session: SqlServerSession, location: Location) -> None:
        super().__init__(session, location)
        if self._kind.columns["Headers"] != "nvarchar":
            # They are rewritten on their way.
            self.can_move = False
        described = self.statements.row("describe_delayed", name=self._delayed.sql)
        # Whether the server can delete the first rows of an order.
        self._removes_firsts = bool(described.deletes_expressions)
        # Whether there is an index on Due, which reads are then forced to use.
        self._seeks = bool(described.seeks)
        names = {**location.names(self._delayed), "seek": ", FORCESEEK" if self._seeks else ""}
        self.statements = session.named(names)
        self._claimed: dict[str, Any] = {}
        # By Due, since a Due is what leads to them.
        self._left_alone: LeftAlone = NOBODY

    # Claim.

    def begin(self, run: SweepRun) -> Begun:
        """It also counts messages in back-off: at least as many as wait at the Dues of a claim."""
        lock = batches_lock(run.sweep_id)
        fence, [some] = self.statements.rows_of_each(
            ("fence", {"sweep_id": run.sweep_id, "lock": lock}, {}),
            ("count_some_waiting", {"source": self.source, "most": SCANNED_ROWS}, {}),
            what="fence",
        )
        return self.begun(run, fence)._replace(in_back_off=int(some.waiting))

    def lock(
        self,
        run: SweepRun,
        claim_keys: Sequence[str],
        begun: Begun,
        left_alone: LeftAlone,
    ) -> Locked:
        self._forget(left_alone)
        wanted, unread = self._narrowed(sorted(claim_keys), begun.in_back_off)
        if not wanted:
            return Locked()
        rows, some_counters = self._read(run, wanted, begun.paused)
        missing, found = Counter(wanted) - Counter(row.due for row in rows), Locked()
        if some_counters is None:
            unread += missing.elements()
        elif missing:
            found = self._explained(run, missing, Counter(row.due for row in rows), begun.paused)
        self._claimed |= {row.message_key: row for row in rows}
        return replace(found, rows=rows, unread=unread, some_counters=some_counters)

    def _explained(
        self,
        run: SweepRun,
        missing: Counter[str],
        claimed: Counter[str],
        paused: Sequence[str] = (),
    ) -> Locked:
        """How many rows that were missing at their Dues are held back by these patterns, locked by
        others, in back-off since the sweep began, and gone.
        """
        skipped = later = 0
        held_back = Counter[str]()
        if paused:
            values = {"dues": _dues(missing), "paused": self._location.pausing(paused)}
            rows = self.statements.rows("count_held_back", **values)
            held_back.update({row.due: row.held_back for row in rows})
        held = missing & held_back
        rows = self.statements.rows(
            "explain_unclaimed",
            source=self.source,
            sweep_id=run.sweep_id,
            dues=_dues(missing.elements()),
            excluded=self._excluded_at(missing),
        )
        for row in rows:
            others = row.present - claimed[row.due] - held_back[row.due] - row.waiting
            # Unless they are excluded, another session has them.
            others -= len(self._excluded_at([row.due]))
            rest = missing[row.due] - held[row.due]
            locked = max(0, min(rest, others))
            skipped += locked
            later += max(0, min(rest - locked, row.failed_since))
        gone = missing.total() - held.total() - skipped - later
        return Locked(skipped=skipped, gone=gone, later=later, held=held.total())

    def _narrowed(self, claim_keys: list[str], in_back_off: int) -> tuple[list[str], list[str]]:
        """Claim keys whose Dues a claim may look through, and those for another claim.

        A claim locks the rows that it looks at. So that it never looks at more than its bound, the
        known failures of the same Dues, and excluded messages, have to leave room.
        """
        excluded = sum(map(len, self._left_alone.values()))
        if in_back_off + excluded + len(claim_keys) <= SCANNED_ROWS:
            return claim_keys, []
        later: list[str] = []
        while (
            len(set(claim_keys)) > 1 and self._waiting(claim_keys) + len(claim_keys) > SCANNED_ROWS
        ):
            middle = len(claim_keys) // 2
            claim_keys, later = claim_keys[:middle], claim_keys[middle:] + later
        return claim_keys, later

    def _waiting(self, claim_keys: list[str]) -> int:
        row = self.statements.row("count_waiting", source=self.source, dues=_dues(claim_keys))
        return int(row.waiting) + len(self._excluded_at(claim_keys))

    def _read(
        self, run: SweepRun, claim_keys: list[str], paused: Sequence[str]
    ) -> tuple[list[Any], Sequence[Any] | None]:
        """The claimed rows, and some retry counters; None: a batch cannot hold more of the rows."""
        left = self._location.batch_bytes

        def wanted(row: Any) -> bool:
            nonlocal left
            left -= 2 * len(row.headers or "") + len(row.body or b"")
            return left > 0

        values = {
            "dues": _dues(claim_keys),
            "horizon": run.horizon.before,
            "source": self.source,
            "paused": self._location.pausing(paused),
            "excluded": self._excluded_at(claim_keys),
        }
        rows, others = self.statements.read_while(
            wanted, ("claim", values, {}), self._some_counters(), what="claim"
        )
        return rows, others and others[0]

    def _some_counters(self) -> Named:
        return "read_some_attempts", {"source": self.source, "most": FEW_COUNTERS}, {}

    # Move.

    @contextmanager
    def select(
        self, run: SweepRun, groups: Sequence[Forwarded], left_alone: LeftAlone = NOBODY
    ) -> Iterator[Selection]:
        """Read the span of the claim keys' Dues, if it holds no other messages. No transaction
        stays open while this process works: `finish_moved` fails if messages come or go before it.
        """
        self._forget(left_alone)
        dues = Counter(due for group in groups for due in group.keys)
        span: Values = {"first": min(dues), "last": max(dues)}
        if max(dues) >= bound_text(run.horizon.before):
            raise UnusualBatchError("a message is not due yet")
        with unusual_errors():
            sweep, some_counters, rows = self.statements.rows_of_each(
                ("look_at_sweep", {"sweep_id": run.sweep_id}, {}),
                self._some_counters(),
                ("set_span", span, {}),
                ("read_span", {"most": dues.total() + 1}, {}),
                what="read_span",
            )
        begun = self.begun(run, sweep)
        clock = StoreClock(begun.server_us, self._location.world.clock)
        claimed = Counter(row.due for row in rows)
        excluded = set(self._excluded_at(dues))
        if claimed - dues or not excluded.isdisjoint(row.message_key for row in rows):
            raise UnusualBatchError("other messages also have these Dues")
        missing, unclaimed = dues - claimed, Locked()
        if missing:
            unclaimed = self._explained(run, missing, claimed)
        unclaimed = replace(unclaimed, some_counters=some_counters)
        found = {} if unclaimed.skipped else self._grouped(rows)
        forwards = sorted(found)
        addresses = [self._kind.address_of(forward) for forward in forwards]
        groups_found = [(each, found[each]) for each in forwards]
        yield Selection(addresses, _Span(begun, clock, span, groups_found, unclaimed))

    def move(
        self,
        run: SweepRun,  # noqa: ARG002 - the batch has begun
        selection: Selection,
        tables: Mapping[Address, Table],
    ) -> Moved:
        """Say what `finish_moved` moves."""
        chosen: _Span = selection.rest
        tombstones, names, inserts = Tombstones(), [self._delayed.sql], list[Named]()
        for address, (forward, group) in zip(selection.addresses, chosen.groups, strict=True):
            cut = HeaderCut.of(self._location, forward, address, tables[address])
            tombstones.add(
                cut.tombstones(group.keys, group.texts, group.instants_us, group.body_bytes)
            )
            names.append(cut.queue.table.sql)
            name = "move_recoverable_span" if cut.queue.has_recoverable else "move_span"
            values = {
                "keys": Keys(group.keys),
                "messages": len(group.keys),
                "cut": len(cut.tail),
            }
            inserts.append((name, values, {"queue": names[-1]}))
        # The time of the move, which is the next step.
        begun = chosen.begun._replace(server_us=chosen.clock.now_us())
        moved = self.checked_move(begun, tombstones, chosen.unclaimed)
        return replace(
            moved, rest=_Move(chosen.span, names, inserts, bool(chosen.unclaimed.some_counters))
        )

    def finish_moved(self, run: SweepRun, slice_number: int, moved: Moved, server_us: int) -> None:
        """Move the span and journal that, in one request, which is a transaction of its own.

        If that takes too long, it may have been committed: then the careful form counts its
        messages as gone.
        """
        span, tables, inserts, has_counters = moved.rest
        tombstones, count = moved.tombstones, len(moved.tombstones.keys)
        set_span: Named = "set_span", span, {}
        begin: Named = "refuse_triggers", {"tables": tables}, {}
        remove = "seek_and_remove_span" if self._seeks else "remove_span"
        end: list[Named] = [
            (remove, {"messages": count, "most": count + 1}, {}),
            self._refused_failures(tombstones, has_counters=has_counters),
            ("journal_batch", self.journalled(run, slice_number, tombstones, server_us), {}),
            ("refuse_dropped", {}, {}),
        ]
        if counted := Keys(tombstones.failed_before):
            end.append(("clear_attempts", {"source": self.source, "keys": counted}, {}))
        with unusual_errors():
            if len(inserts) <= _MANY_DESTINATIONS:
                self._commit_each(run, begin, set_span, *inserts, *end, what="move_span")
                return
            with self.transaction():
                for each in (begin, *inserts):
                    self.statements.rows_of_each(set_span, each, what="move_span")
                self._commit_each(run, set_span, *end, what="move_span")

    def _refused_failures(self, tombstones: Tombstones, *, has_counters: bool) -> Named:
        if not has_counters:
            return "refuse_failures", {"source": self.source}, {}
        failures = {"keys": Keys(tombstones.keys), "failures": sum(tombstones.attempts)}
        return "refuse_new_failures", {"source": self.source, **failures}, {}

    def end_slice(self, run: SweepRun, slice_number: int, end: SliceEnd) -> None:
        values = {"sweep_id": run.sweep_id, "slice": slice_number, **end_as_values(end)}
        self._commit_each(run, ("journal_slice", values, {}), what="journal_slice")

    def _commit_each(self, run: SweepRun, *named: Named, what: str) -> None:
        """Run statements in a transaction of their own, if the sweep is open."""
        lock = batches_lock(run.sweep_id)
        fence: Named = "fence_or_end", {"sweep_id": run.sweep_id, "lock": lock}, {}
        [is_open, *_] = self.statements.commit_each(fence, *named, what=what)
        self.refuse_closed(run, is_open)

    def _grouped(self, rows: Sequence[Any]) -> dict[str, _Group]:
        """The rows by their destination."""
        found: dict[str, _Group] = {}
        for row in rows:
            before, forward = self._before_forward(row)
            group = found.setdefault(forward, _Group())
            group.keys.append(row.message_key)
            group.texts.append(before)
            group.instants_us.append(micros(due_of(row.due)))
            group.body_bytes.append(row.body_bytes)
        return found

    def _before_forward(self, row: Any) -> tuple[str, str]:
        """The row's headers up to the forward destination, and how that is written."""
        text = row.headers
        if text is None or (not text.isascii() and _ASTRAL.search(text)):
            raise UnusualBatchError("there are no headers, or the server may count them otherwise")
        if self._kind.has_destination:
            return text, row.destination or ""
        return split_headers(text)

    # The memory of a session.

    def _forget(self, left_alone: LeftAlone = NOBODY) -> None:
        """Forget the claim before."""
        self._claimed, self._left_alone = {}, left_alone

    def claim_key(self, message: Message) -> str:
        """Its Due, to the tick."""
        return str(self._claimed[message.key].due)

    def _excluded_at(self, dues: Iterable[str]) -> Keys:
        """The keys of the messages of these Dues that the claim excludes."""
        return Keys(key for due in set(dues) for key in self._left_alone.get(due, ()))

    def failure(self, failed: Failed) -> Values:
        seconds, milliseconds = divmod(int(failed.retry_seconds * 1_000), 1_000)
        return {
            "due": self.claim_key(failed.message),
            "attempts": failed.message.attempts + 1,
            "retry_seconds": seconds,
            "retry_ms": milliseconds,
        }

    def stored(self, message: Message) -> Values:
        stored = self._claimed[message.key].headers
        headers, text = self._kind.stored_headers(message, stored)
        return {"headers": headers, "headers_text": text, "body": message.body}

    # Counts and rows of the journal.

    def count_exhausted(self, sweep_id: UUID) -> int | None:
        lock = f"{batches_lock(sweep_id)}/exhausted"
        row = self.statements.row("lock_sweep_counters", sweep_id=sweep_id, lock=lock)
        return None if row.answer < 0 else int(row.exhausted)

    def late(self, late_ms: Sequence[int]) -> object:
        """Packed, since there are no arrays."""
        return packed(late_ms)

    def write_rows(self, name: str, same: Mapping[str, object], rows: Sequence[Values]) -> None:
        """One after the other; with one preparation, unless they have bodies, whose lengths have to
        be declared.
        """
        if rows and "body" in rows[0]:
            for row in rows:
                self.statements.execute(name, **same, **row)
        else:
            self.statements.execute_many(name, [{**same, **row} for row in rows])

    # Remove.

    def not_removed(self, text: str, advice: str) -> StoreError:
        """Or another session ignored the locks, as on servers that have no such hints."""
        return TransactionLostError(text, advice=advice)

    def delete(self, messages: Sequence[Message]) -> int:
        self.statements.require_transaction()
        if self._kind.has_indexed_key:
            keys = Keys(message.key for message in messages)
            return int(self.statements.row("remove_by_id", keys=keys).messages)
        gone, claimed = self._by_due(m.key for m in messages), self._by_due(self._claimed)
        few: list[tuple[str, str]] = []
        removed = 0
        for due, keys_of_due in gone.items():
            if self._removes_firsts and len(keys_of_due) > _FEW:
                removed += self._remove_firsts(due, keys_of_due, claimed[due] - keys_of_due)
            else:
                few += [(due, key) for key in keys_of_due]
        return removed + self._remove_by_key(few)

    def _by_due(self, keys: Iterable[str]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for key in keys:
            found.setdefault(self._claimed[key].due, set()).add(key)
        return found

    def _remove_firsts(self, due: str, keys: set[str], staying: set[str]) -> int:
        """Remove messages of one Due as the first unlocked ones, except
        ones that stay, unless others have come among them.
        """
        kept = json.dumps([*staying, *self._excluded_at([due])])
        with suppress(_OthersRemovedError), self.statements.transaction():
            rows = self.statements.rows(
                "remove_first", source=self.source, rows=len(keys), due=due, kept=kept
            )
            if {row.message_key for row in rows} != keys:
                raise _OthersRemovedError
            return len(rows)
        return self._remove_by_key([(due, key) for key in keys])

    def _remove_by_key(self, messages: Sequence[tuple[str, str]]) -> int:
        if not messages:
            return 0
        return int(self.statements.row("remove", messages=_places(messages)).messages)

    # One message at a time, and operators' commands. Dues are UTC's, whatever the zone.

    def lock_next(self, zone: str) -> Sequence[Any]:  # noqa: ARG002
        rows = self.statements.rows("fetch_next_due", source=self.source)
        self._claimed |= {row.message_key: row for row in rows}
        return rows

    def put_back(
        self,
        messages: Sequence[NewMessage],
        zone: str,  # noqa: ARG002
    ) -> Sequence[tuple[str, int]]:
        """Each at the first tick of the column that is not before its Due."""
        ticks = [due_of(bound_text(message.due)) for message in messages]
        with row_errors():
            keys = [
                self._location.store_row(self.statements, message, due_text(tick, "milliseconds"))
                for message, tick in zip(messages, ticks, strict=True)
            ]
        return list(zip(keys, map(micros, ticks), strict=True))

    def hold(self, lock_keys: Sequence[str], zone: str) -> Sequence[Any]:  # noqa: ARG002
        self._forget()
        if self._kind.has_indexed_key:
            rows = self.statements.rows("hold_by_id", keys=Keys(lock_keys))
        else:
            places = _places(map(split_lock_key, lock_keys))
            rows = self.statements.rows("hold", messages=places)
        self._claimed |= {row.message_key: row for row in rows}
        return rows

    def count_present(self, lock_keys: Sequence[str]) -> int:
        if self._kind.has_indexed_key:
            row = self.statements.row("count_present_by_id", keys=Keys(lock_keys))
        else:
            places = _places(map(split_lock_key, lock_keys))
            row = self.statements.row("count_present", messages=places)
        return int(row.present)

    def set_due(
        self,
        messages: Sequence[tuple[Message, datetime]],
        zone: str,  # noqa: ARG002
    ) -> Mapping[str, int]:
        """Each becomes the first tick of the column that is not before the wanted instant."""
        ticks = {message.key: bound_text(due) for message, due in messages}
        if self._kind.has_indexed_key:
            changed = sum(
                self.statements.row("reschedule_by_id", message_key=key, new_due=tick).messages
                for key, tick in ticks.items()
            )
        else:
            places = [
                {"due": self.claim_key(message), "key": message.key, "new_due": ticks[message.key]}
                for message, _ in messages
            ]
            changed = self.statements.row("reschedule", messages=json.dumps(places)).messages
        instants = {key: micros(due_of(tick)) for key, tick in ticks.items()}
        return instants if changed == len(messages) else {}


def _places(messages: Iterable[tuple[str, str]]) -> str:
    """Dues and keys, as JSON."""
    return json.dumps([{"due": due, "key": key} for due, key in messages])


def _dues(claim_keys: Iterable[str]) -> str:
    """Each Due of the claim keys, and how many of them it has, as JSON."""
    return json.dumps([{"due": due, "wanted": n} for due, n in Counter(claim_keys).items()])
