"""A task's session on a relational store: batches of a slice.

A batch is one transaction. It holds the sweep open, locks rows, reads their retry counters in a
statement of its own, and at the end removes delivered messages, counts failures, and journals both.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple, Self
from uuid import UUID

from duesweep.core.account import SliceEnd, end_as_values
from duesweep.core.errors import (
    MessageError,
    RefusedStatementError,
    StoreError,
    SweepClosedError,
    SweepStoppedError,
    UnusualBatchError,
    format_stack,
    make_storable,
    type_name,
)
from duesweep.core.message import Address, Delivered, Exhausted, Failed, Message, Outcome
from duesweep.core.policy import RateLimit
from duesweep.drivers.statements import Keys, Session, retry_lost_transactions
from duesweep.stores.dialect import Location, Values, batches_lock
from duesweep.stores.messages import NewMessage
from duesweep.stores.sql_connection import read_pauses
from duesweep.stores.sweeps import SweepRun
from duesweep.stores.task import NOBODY, Claim, LeftAlone, Moved, TaskSession
from duesweep.stores.tombstone import Tombstones

# Most sources have few counters: all of them cost less than a search for a thousand keys.
FEW_COUNTERS = 100


class Begun(NamedTuple):
    """A batch that has begun: the server's time in microseconds, the patterns of pauses, and how
    many messages are in back-off, up to a bound, where a claim depends on that.
    """

    server_us: int
    paused: tuple[str, ...]
    in_back_off: int = 0


@dataclass(frozen=True, slots=True)
class Locked:
    """Rows that a claim has locked or removed; of the other claim keys, what `Claim` says.
    `some_counters` are the rows of `read_some_attempts`, if they were read after that.
    """

    rows: Sequence[Any] = ()
    unread: Sequence[str] = ()
    skipped: int = 0
    gone: int = 0
    later: int = 0
    held: int = 0
    some_counters: Sequence[Any] | None = None


class SqlTask(TaskSession):
    """One slice's session, on one connection; `connection` is for a queue in the same database,
    which delivers in the claim's own transaction. A dialect's own class knows how rows are found,
    locked and removed there, and `can_move` them.
    """

    def __init__(self, session: Session, location: Location) -> None:
        self.source = location.source
        self.connection = session
        self._location = location
        self._kind = location.kind
        self._endpoint: str = location.addresses.endpoint
        self._delayed = location.find_delayed(session)
        self.statements = session.named(location.names(self._delayed))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.__exit__(*error)

    def transaction(self) -> AbstractContextManager[None]:
        return self.statements.transaction()

    # The dialect's own part.

    @abstractmethod
    def lock(
        self,
        run: SweepRun,
        claim_keys: Sequence[str],
        begun: Begun,
        left_alone: LeftAlone,
    ) -> Locked:
        """Lock due rows, at most one a claim key; skip rows that others hold. Rows in back-off may
        be among them, and paused ones.
        """

    @abstractmethod
    def delete(self, messages: Sequence[Message]) -> int:
        """Remove the rows of messages that are held; how many there were."""

    def not_removed(self, text: str, advice: str) -> StoreError:
        """Why rows that are held are still there: a trigger kept them, and will do so again."""
        return StoreError(text, transient=False, advice=advice)

    @abstractmethod
    def failure(self, failed: Failed) -> Values:
        """The values for the retry counter of a message that fails."""

    def stored(self, message: Message) -> Values:  # noqa: ARG002 - where the server copies them
        """Headers and body of a message that leaves for good, for the journal."""
        return {}

    @abstractmethod
    def count_exhausted(self, sweep_id: UUID) -> int | None:
        """How many messages a sweep has exhausted; its other slices wait to count until this
        transaction ends. None: another one has been counting for too long.
        """

    @abstractmethod
    def late(self, late_ms: Sequence[int]) -> object:
        """The lateness of a batch's messages, in milliseconds, as it is kept."""

    @abstractmethod
    def write_rows(self, name: str, same: Mapping[str, object], rows: Sequence[Values]) -> None:
        """Run the named statement for each of these rows, with the values that all share."""

    # For operators' commands, and for one message at a time. `zone` is the writers'.

    @abstractmethod
    def lock_next(self, zone: str) -> Sequence[Any]:
        """Lock the row that has been due for the longest and is eligible, if any."""

    @abstractmethod
    def hold(self, lock_keys: Sequence[str], zone: str) -> Sequence[Any]:
        """Lock rows whatever their Due; skip rows that others hold."""

    @abstractmethod
    def count_present(self, lock_keys: Sequence[str]) -> int:
        """How many of these rows are there, locked or not."""

    @abstractmethod
    def set_due(self, messages: Sequence[tuple[Message, datetime]], zone: str) -> Mapping[str, int]:
        """Give messages that are held new Dues. Returns the instants, in microseconds, by key."""

    @abstractmethod
    def put_back(self, messages: Sequence[NewMessage], zone: str) -> Sequence[tuple[str, int]]:
        """Store messages; their keys, and the instants in microseconds at which they are due."""

    # A batch.

    def address_of(self, forward: str) -> Address:
        return self._kind.address_of(forward)

    def claim(
        self, run: SweepRun, claim_keys: Sequence[str], left_alone: LeftAlone = NOBODY
    ) -> Claim:
        begun = self.begin(run)
        locked = self.lock(run, claim_keys, begun, left_alone)
        messages = self.messages(locked.rows, locked.some_counters, in_back_off=False)
        messages.sort(key=lambda message: message.due_us or 0)
        later = locked.later + len(locked.rows) - len(messages)
        return Claim(
            tuple(messages),
            begun.server_us,
            locked.unread,
            locked.skipped,
            locked.gone,
            later,
            begun.paused,
            locked.held,
        )

    def checked_move(
        self,
        begun: Begun,
        tombstones: Tombstones,
        missing: Locked,
    ) -> Moved:
        """The answer of `move`. `missing` are the claim keys that led to no message. Raises
        `UnusualBatchError` if that, or a retry counter, is not as usual.
        """
        if missing.skipped:
            raise UnusualBatchError("some rows are locked, or changed since the plan")
        # After the rows were locked, as in a claim; or `finish_moved` fails if counters change.
        counters = self._read_counters(tombstones.keys, missing.some_counters)
        if counters:
            found = [counters.get(key) for key in tombstones.keys]
            if not all(counter is None or counter.is_eligible for counter in found):
                raise UnusualBatchError("a message is in back-off")
            attempts = [counter.attempts if counter else 0 for counter in found]
            tombstones = replace(tombstones, attempts=attempts)
        return Moved(tombstones, begun.server_us, missing.gone, missing.later, begun.paused)

    def grant_exhausted(self, run: SweepRun, wanted: int, limit: int) -> int:
        """How many more messages the sweep may exhaust. If its other slices count for too long,
        none: then the messages stay as failures.
        """
        exhausted = self.count_exhausted(run.sweep_id)
        return 0 if exhausted is None else max(0, min(wanted, limit - exhausted))

    def finish(
        self, run: SweepRun, slice_number: int, outcomes: Sequence[Outcome], server_us: int
    ) -> None:
        delivered = [one for one in outcomes if isinstance(one, Delivered)]
        failed = [one for one in outcomes if isinstance(one, Failed)]
        exhausted = [one for one in outcomes if isinstance(one, Exhausted)]
        if exhausted:
            self._journal_exhausted(run, slice_number, exhausted, server_us)
        if gone := [one.message for one in delivered] + [one.message for one in exhausted]:
            self.remove(gone)
        if failed:
            self.count_failures(failed)
        over_limit = sum(one.is_over_limit for one in failed)
        if exhausted or over_limit:
            self.statements.execute(
                "add_exhausted",
                sweep_id=run.sweep_id,
                exhausted=len(exhausted),
                over_limit=over_limit,
            )
        tombstones = Tombstones.of(delivered, self._endpoint)
        self._journal_batch(
            self.journalled(run, slice_number, tombstones, server_us, failed=len(failed))
        )

    def finish_moved(self, run: SweepRun, slice_number: int, moved: Moved, server_us: int) -> None:
        self.clear_counters(moved.tombstones.failed_before)
        self._journal_batch(self.journalled(run, slice_number, moved.tombstones, server_us))

    def end_slice(self, run: SweepRun, slice_number: int, end: SliceEnd) -> None:
        """Journal the end of a slice, in a transaction of its own."""
        with self.transaction():
            self.refuse_closed(run, self._fence(run))
            self.statements.execute(
                "journal_slice",
                sweep_id=run.sweep_id,
                slice=slice_number,
                **end_as_values(end),
            )

    @retry_lost_transactions
    def reserve(self, limit: RateLimit, messages: int) -> float:
        seconds = messages * limit.seconds_each
        with self.statements.transaction():
            row = self.statements.row(
                "reserve", source=self.source, pattern=limit.pattern, seconds=seconds
            )
        return float(row.wait_seconds)

    # The steps of a batch.

    def begin(self, run: SweepRun) -> Begun:
        """Begin a batch of a sweep that is open, and hold it open until this transaction ends."""
        return self.begun(run, self._fence(run))

    def begun(self, run: SweepRun, fence: Sequence[Any]) -> Begun:
        """The batch that has begun, by the row of `fence`."""
        self.refuse_closed(run, fence)
        if fence[0].is_stopping:
            raise SweepStoppedError(f"Sweep {run.sweep_id} of {self.source} is to stop")
        pauses = read_pauses(self.statements, self.source) if fence[0].has_pauses else ()
        return Begun(fence[0].server_us, tuple(pause.pattern for pause in pauses))

    def _fence(self, run: SweepRun) -> Sequence[Any]:
        lock = batches_lock(run.sweep_id)
        return self.statements.rows("fence", sweep_id=run.sweep_id, lock=lock)

    def refuse_closed(self, run: SweepRun, fence: Sequence[Any]) -> None:
        if not fence or not fence[0].is_open:
            raise SweepClosedError(
                f"Sweep {run.sweep_id} of {self.source} was closed by another process, which took "
                "its driver for dead; the next sweep delivers the remaining messages"
            )

    def messages(
        self, rows: Sequence[Any], some: Sequence[Any] | None = None, *, in_back_off: bool
    ) -> list[Message]:
        """The messages in these rows, with those `in_back_off` or without; `some` as for
        `_read_counters`.
        """
        read, keys = self._kind.read_message, [row.message_key for row in rows]
        # After the rows were locked: or two sweeps could both count one failure.
        counters = self._read_counters(keys, some)
        if not counters:
            return [read(row, 0) for row in rows]
        counted = ((row, counters.get(key)) for key, row in zip(keys, rows, strict=True))
        return [
            read(row, 0 if counter is None else counter.attempts)
            for row, counter in counted
            if in_back_off or counter is None or counter.is_eligible
        ]

    def _read_counters(
        self, keys: Sequence[str], some: Sequence[Any] | None = None
    ) -> Mapping[str, Any]:
        """The retry counters of messages, by their keys; and perhaps some of others. `some` are the
        rows of `read_some_attempts`, if they are known.
        """
        if not keys:
            return {}
        rows = some
        if rows is None:
            rows = self.statements.rows("read_some_attempts", source=self.source, most=FEW_COUNTERS)
        if len(rows) == FEW_COUNTERS:
            rows = self.statements.rows("read_attempts", source=self.source, keys=Keys(keys))
        return {row.message_key: row for row in rows}

    def clear_counters(self, keys: Iterable[str]) -> None:
        """Drop the counters of messages that leave."""
        if counted := Keys(keys):
            self.statements.execute("clear_attempts", source=self.source, keys=counted)

    def count_failures(self, failed: Sequence[Failed]) -> None:
        """Raise the counters of messages that stay."""
        rows = [
            {
                "message_key": f.message.key,
                "message_id": storable_or_none(f.message.message_id),
                "destination": self.destination_of(f.message),
                "error_class": type_name(f.error),
                "error_text": make_storable(str(f.error)),
                **self.failure(f),
            }
            for f in failed
        ]
        source = {"source": self.source}
        self.write_rows("raise_attempts", source, rows)
        if self._kind.raise_counters is not None:
            keys = Keys(f.message.key for f in failed)
            self.statements.execute(self._kind.raise_counters, keys=keys)

    def remove(self, messages: Sequence[Message]) -> None:
        """Remove messages that are held, with their retry counters."""
        removed = self.delete(messages)
        if removed != len(messages):
            # They are delivered already: roll everything back.
            raise self.not_removed(
                f"{self.source} removed {removed} of {len(messages)} rows that this sweep holds "
                "locked",
                "look for triggers or rules on the delayed table",
            )
        self.clear_counters(m.key for m in messages if m.attempts)

    def _journal_batch(self, batch: Values) -> None:
        refuse_dropped(self.statements.execute("journal_batch", **batch), self.source)

    def journalled(
        self,
        run: SweepRun,
        slice_number: int,
        tombstones: Tombstones,
        server_us: int,
        *,
        failed: int = 0,
    ) -> Values:
        """The values of the journal's row of a batch."""
        late = tombstones.lateness_ms(server_us)
        return {
            "sweep_id": run.sweep_id,
            "slice": slice_number,
            "dispatched": len(tombstones.keys),
            "failed": failed,
            "body_bytes": sum(tombstones.body_bytes),
            "attempts_changed": bool(failed) or any(tombstones.attempts),
            "lateness_ms": self.late([ms for ms in late if ms is not None]),
            "outcomes": tombstones.encode(late, server_us) if tombstones.keys else None,
        }

    def _journal_exhausted(
        self, run: SweepRun, slice_number: int, exhausted: Sequence[Exhausted], server_us: int
    ) -> None:
        """Journal messages out of attempts, whole."""
        same = {
            "source": self.source,
            "sweep_id": run.sweep_id,
            "slice": slice_number,
            "dispatched_us": server_us,
        }
        rows = [
            {
                "message_key": e.message.key,
                "message_id": storable_or_none(e.message.message_id),
                "message_type": storable_or_none(e.message.message_type),
                "destination": self.destination_of(e.message),
                "queue": e.queue,
                "due_us": e.message.instant_us,
                "attempts": e.message.attempts + 1,
                "error_class": type_name(e.error),
                "error_text": make_storable(e.text),
                "stack": format_stack(e.error),
                **self.stored(e.message),
            }
            for e in exhausted
        ]
        self.write_rows("journal_exhausted", same, rows)

    def destination_of(self, message: Message) -> str | None:
        """The destination to write down; None if it cannot be read."""
        if isinstance(message.headers, MessageError) and message.destination is None:
            return None
        return make_storable(self._endpoint if message.destination is None else message.destination)


def refuse_dropped(took: int, source: str) -> None:
    """Raise `StoreError` if the journal took no row, and raised no error."""
    if took == 0:
        raise RefusedStatementError(
            f"The journal of {source} did not take a row, and the server raised no error",
            advice="look for a trigger or a rule on the tables duesweep_… that drops rows",
        )


def storable_or_none(text: str | None) -> str | None:
    """`text` without characters that a text column cannot hold; None stays None."""
    return None if text is None else make_storable(text)
