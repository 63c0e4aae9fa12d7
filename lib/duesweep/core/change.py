"""What an operator did to messages, as values. Stores carry it out and journal it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from duesweep.core.message import Message


class ChangeKind(StrEnum):
    """The column `change` of the ledger's `changes`."""

    CANCELLED = "cancelled"
    RESCHEDULED = "rescheduled"
    RESTORED = "restored"
    REPLAYED = "replayed"
    DISCARDED = "discarded"


@dataclass(frozen=True, slots=True)
class Command:
    """An operator's command: its name, who gave it, and why. It is journalled and settled as a
    sweep is.
    """

    name: str
    given_by: str
    reason: str | None


class Change(NamedTuple):
    """One message that a command changed, a row of the ledger's `changes`.

    Dues are instants in microseconds since 1970-01-01 UTC: `due_before` None where the message did
    not wait, `due_after` None where it does not wait any more. `queue` is where it was delivered
    to. `of` is the sweep or command whose ledger row this undoes: the sweep that exhausted a
    message that is replayed or discarded, the command that cancelled one that is restored.
    `message.key` is its key at that time; `new_key` is what the store calls it now, None where it
    keeps its key or is not stored. `is_whole`: headers and body are journalled, too.
    """

    kind: ChangeKind
    message: Message
    due_before: int | None = None
    due_after: int | None = None
    queue: str | None = None
    of: str | None = None
    new_key: str | None = None
    is_whole: bool = False
