"""Journal entries as values, the same for every store, so that tests can compare them."""

from collections.abc import Sequence
from dataclasses import dataclass

from duesweep.core.account import SliceEnd
from duesweep.core.change import Change
from duesweep.core.errors import MessageError, format_stack, type_name
from duesweep.core.message import Delivered, Exhausted, Failed, Message, Outcome
from duesweep.stores.tombstone import Tombstones
from duesweep_testing.builders import ENDPOINT, DelayedRow


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """The numbers of a batch; `outcomes` are its encoded tombstones."""

    slice_number: int
    dispatched: int
    failed: int
    body_bytes: int
    attempts_changed: bool
    lateness_ms: tuple[int, ...]
    outcomes: bytes | None


@dataclass(frozen=True, slots=True)
class ExhaustedEntry:
    """An exhausted message with headers and body; `headers` as they were stored."""

    slice_number: int
    message_key: str
    message_id: str | None
    message_type: str | None
    destination: str | None
    queue: str | None
    due_us: int | None
    dispatched_us: int
    attempts: int
    error_class: str
    error_text: str
    stack: str
    headers: str
    body: bytes | None


@dataclass(frozen=True, slots=True)
class SliceEntry:
    """The end of a slice."""

    slice_number: int
    end: SliceEnd

    @property
    def reason(self) -> str | None:
        """Why it was cut; None: it is complete."""
        return self.end.reason


@dataclass(frozen=True, slots=True)
class ChangeEntry:
    """A message that an operator's command changed. `headers_text` and `body` are only of
    cancelled messages, as they were stored.
    """

    change: str
    changed_us: int
    message_key: str
    message_id: str | None
    message_type: str | None
    destination: str | None
    due_before_us: int | None
    due_after_us: int | None
    of: str | None
    new_key: str | None
    attempts: int
    body_bytes: int
    headers_text: str | None = None
    body: bytes | None = None


JournalEntry = BatchEntry | ExhaustedEntry | SliceEntry


def batch_entry(
    slice_number: int, outcomes: Sequence[Outcome], server_us: int, own_queue: str = ENDPOINT
) -> BatchEntry:
    """The entry of one batch. `own_queue` is the destination of messages that have none."""
    delivered = [one for one in outcomes if isinstance(one, Delivered)]
    failed = sum(isinstance(one, Failed) for one in outcomes)
    tombstones = Tombstones.of(delivered, own_queue)
    late_ms = tombstones.lateness_ms(server_us)
    return BatchEntry(
        slice_number,
        dispatched=len(delivered),
        failed=failed,
        body_bytes=sum(d.message.body_bytes for d in delivered),
        attempts_changed=bool(failed) or any(d.message.attempts for d in delivered),
        lateness_ms=tuple(ms for ms in late_ms if ms is not None),
        outcomes=tombstones.encode(late_ms, server_us) if delivered else None,
    )


def exhausted_entry(
    slice_number: int,
    exhausted: Exhausted,
    row: DelayedRow,
    server_us: int,
    *,
    own_queue: str = ENDPOINT,
) -> ExhaustedEntry:
    """The entry of one exhausted message, whose row is `row`."""
    gone = exhausted.message
    return ExhaustedEntry(
        slice_number,
        message_key=gone.key,
        message_id=gone.message_id,
        message_type=gone.message_type,
        destination=destination_of(gone, own_queue),
        queue=exhausted.queue,
        due_us=gone.instant_us,
        dispatched_us=server_us,
        attempts=gone.attempts + 1,
        error_class=type_name(exhausted.error),
        error_text=exhausted.text,
        stack=format_stack(exhausted.error),
        headers=row.headers,
        body=row.body,
    )


def change_entry(
    change: Change, changed_us: int, row: DelayedRow | None = None, own_queue: str = ENDPOINT
) -> ChangeEntry:
    """The entry of a change; `row` is the row of a cancelled message."""
    message = change.message
    return ChangeEntry(
        change.kind.value,
        changed_us,
        message_key=message.key,
        message_id=message.message_id,
        message_type=message.message_type,
        destination=destination_of(message, own_queue),
        due_before_us=change.due_before,
        due_after_us=change.due_after,
        of=change.of,
        new_key=change.new_key,
        attempts=message.attempts,
        body_bytes=message.body_bytes,
        headers_text=None if row is None else row.headers,
        body=None if row is None else row.body,
    )


def destination_of(message: Message, own_queue: str) -> str | None:
    """The destination, as journal and ledger say; None if that cannot be read."""
    if message.destination is not None:
        return message.destination
    return None if isinstance(message.headers, MessageError) else own_queue
