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


@dataclass(frozen=True, slots=True)
class Command:
    """An operator's command: its name, who gave it, and why. It is journalled and settled as a
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
    not wait, `due_after` None where it does not wait any more. `queue` is where it was delivered
    to. `of` is the sweep or command whose ledger row this undoes: the sweep that exhausted a
    message that is replayed or discarded, the command that cancelled one that is restored.
    `message.key` is its key at that time; `new_key` is what the store calls it now, None where it
    keeps its key or is not stored. `message.attempts` are its failures so far.
    """

    kind: ChangeKind
    message: Message
    due_before: int | None = None
    due_after: int | None = None
    queue: str | None = None
    of: str | None = None
    new_key: str | None = None
