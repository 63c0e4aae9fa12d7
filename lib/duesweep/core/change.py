"""What operators see and do, as values: the messages that wait in a store, the choice of some of
them, and the changes by a command, which stores carry out and journal.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from duesweep.core.errors import MessageError
from duesweep.core.message import Message
from duesweep.core.routing import fits_any, fits_destination
from duesweep.core.world import micros

SAGA_ID = "NServiceBus.SagaId"
# Under it a deferred message names the saga that it is for.
_SAGA_IDS = (SAGA_ID, "NServiceBus.OriginatingSagaId")
# A scan of this many messages takes about half a minute.
SCAN_LIMIT = 1_000_000


class WaitingMessage(NamedTuple):
    """A stored message, read without a lock: it may be gone by now.

    `message` is as a claim returns it, but its body is None unless it was asked for; `body_bytes`
    is the body's size. `lock_key` is the text by which the store finds and locks it again (its key,
    or if no key is indexed its Due and its key). `due` is the instant at which it is due; None:
    never, or an infinite time. `next_attempt_at` and `error`: why it is in back-off; None: it has
    not failed.
    """

    message: Message
    lock_key: str
    due: datetime | None
    body_bytes: int
    next_attempt_at: datetime | None = None
    error: str | None = None

    def destination(self, own_queue: str) -> str | None:
        """The destination, if it can be read; to the endpoint itself: `own_queue`."""
        message = self.message
        if message.destination is None:
            return None if isinstance(message.headers, MessageError) else own_queue
        return message.destination


@dataclass(frozen=True, slots=True)
class DueSpan:
    """Instants from `start` (included) to `end` (not included); None: no limit. Messages that are
    never due are in all spans without an end.
    """

    start: datetime | None = None
    end: datetime | None = None

    def has(self, instant_us: int | None) -> bool:
        """Whether an instant is in it; None: never. In microseconds, since a Due may be beyond
        Python's times.
        """
        if instant_us is None:
            return self.end is None
        starts = self.start is None or instant_us >= micros(self.start)
        return starts and (self.end is None or instant_us < micros(self.end))


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Which messages an operator means. All conditions have to hold; no condition: all messages.

    `destination`, `message_type` and the values of `headers` are patterns (`core.routing`). A
    message for the endpoint itself has the name of its own queue as destination. `is_failing`: it
    has failed.
    """

    keys: tuple[str, ...] = ()
    message_ids: tuple[str, ...] = ()
    destination: str | None = None
    message_type: str | None = None
    saga_id: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    due: DueSpan = DueSpan()
    is_failing: bool = False

    @property
    def is_empty(self) -> bool:
        return self == MessageFilter()

    @property
    def reads_headers(self) -> bool:
        """Whether the store cannot apply it: each message must be looked at."""
        return self != MessageFilter(keys=self.keys, due=self.due)

    def matches(self, waiting: WaitingMessage, own_queue: str) -> bool:
        """Whether it means this message. Keys and the span of Dues are the store's affair: it may
        know a key in several spellings.
        """
        message, destination = waiting.message, self.destination
        headers = message.headers if isinstance(message.headers, dict) else {}
        return (
            (not self.message_ids or message.message_id in self.message_ids)
            and (not self.is_failing or message.attempts > 0)
            and (
                destination is None or fits_destination(waiting.destination(own_queue), destination)
            )
            and fits_any(self.message_type, [message.message_type])
            and (self.saga_id is None or self.saga_id in {headers.get(n) for n in _SAGA_IDS})
            and all(fits_any(pattern, [headers.get(name)]) for name, pattern in self.headers)
        )


def spelled_alike(key: str) -> str:
    """One spelling for all of a key that is a UUID; others are as they are."""
    try:
        return str(UUID(key))
    except ValueError:
        return key


def spellings(keys: Iterable[str]) -> set[str]:
    """Keys as they were given, and as stores and ledgers have them."""
    return {spelling for key in keys for spelling in (key, spelled_alike(key))}


class ChangeKind(StrEnum):
    """The column `change` of the ledger's `changes`."""

    CANCELLED = "cancelled"
    RESCHEDULED = "rescheduled"
    RESTORED = "restored"
    REPLAYED = "replayed"
    DISCARDED = "discarded"


class CommandName(StrEnum):
    """The column `command` of the ledger's `changes`."""

    CANCEL = "cancel"
    RESCHEDULE = "reschedule"
    RESTORE = "restore"
    REPLAY = "errors replay"
    DISCARD = "errors discard"

    @property
    def undoes(self) -> bool:
        """Whether it acts on rows of the ledger, on each once: only one such command of a source
        runs at a time.
        """
        return self not in {CommandName.CANCEL, CommandName.RESCHEDULE}

    @property
    def done(self) -> ChangeKind:
        return _DONE[self]

    @property
    def verb(self) -> str:
        """The word for its act, in a question."""
        return self.removeprefix("errors ")

    @property
    def noun(self) -> str:
        """A thing that it changes."""
        return "error" if self.verb != self else "message"


_DONE = dict(zip(CommandName, ChangeKind, strict=True))


@dataclass(frozen=True, slots=True)
class Command:
    """An operator's command: its name, its giver and its reason. It is journalled and settled as a
    sweep is.
    """

    name: CommandName
    given_by: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class UnsettledCommand:
    """A command in the journal. `attempts_changed`: it changed retry counters."""

    command: Command
    attempts_changed: bool


class Change(NamedTuple):
    """One message that a command changed, a row of the ledger's `changes`.

    Dues are instants in microseconds since 1970-01-01 UTC: `due_before` None where the message did
    not wait, `due_after` None if it does not wait any more. `of` is the sweep or command whose
    ledger row this undoes: the sweep that exhausted a message that is replayed or discarded, the
    command that cancelled one that is restored.
    `message.key` is its key at that time; `new_key` is its key in the store now, None if it
    keeps its key or is not stored. `message.attempts` are its failures so far.
    """

    kind: ChangeKind
    message: Message
    due_before: int | None = None
    due_after: int | None = None
    of: str | None = None
    new_key: str | None = None
