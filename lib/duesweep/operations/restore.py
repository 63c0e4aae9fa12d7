"""What `restore` does: stores cancelled messages again, each once.

The ledger's `changes` has each cancelled message whole, and which were restored (see `put_back`).
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from duesweep.core.change import Change, ChangeKind, CommandName, spelled_alike, spellings
from duesweep.core.errors import ConfigError, ExitCode, UnreadableHeadersError
from duesweep.core.message import Message
from duesweep.core.policy import BatchLimits
from duesweep.core.times import Moment
from duesweep.core.world import instant_of, micros
from duesweep.ledger.base import CHANGES, MICROSECONDS, Among, LedgerRow
from duesweep.ledger.ledger import Ledger
from duesweep.operations.change import Tally, settle_earlier
from duesweep.operations.messages import AnyChosen
from duesweep.operations.opening import command_ledger
from duesweep.operations.put_back import Returning, put_back
from duesweep.stores.base import NewMessage, OperatorTask, SweepRun
from duesweep.sweep.job import SweepContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHOWN = ("sweep_id", "message_key", "message_id", "message_type", "destination")
_DUE_BEFORE = f"due_before{MICROSECONDS}"
_STORED = (_DUE_BEFORE, "headers", "headers_text", "body")
_TIMELESS = "it had no Due; set one with --to"


class CancelledId(NamedTuple):
    """The command that cancelled a message, and the key that the message had."""

    command: str
    key: str


@dataclass(frozen=True, slots=True)
class CancelledMessages:
    """The cancelled messages of a source in the ledger: the ones with these keys, the ones that a
    command cancelled, or both.
    """

    ledger: Ledger
    source: str
    keys: Sequence[str] = ()
    command: str | None = None

    def restored(self) -> set[CancelledId]:
        """The messages of the source that were restored already."""
        rows = self.ledger.rows(
            CHANGES,
            ("of", "message_key"),
            Among("source", [self.source]),
            Among("change", [ChangeKind.RESTORED.value]),
        )
        return {CancelledId(row["of"], row["message_key"]) for row in rows}

    def rows(self, *more: str) -> Iterator[LedgerRow]:
        """What tells one from another, and `more` columns."""
        conditions = [
            Among("source", [self.source]),
            Among("change", [ChangeKind.CANCELLED.value]),
        ]
        if self.keys:
            conditions.append(Among("message_key", sorted(spellings(self.keys))))
        if self.command is not None:
            conditions.append(Among("sweep_id", [self.command]))
        return self.ledger.rows(CHANGES, (*_SHOWN, *more), *conditions)


def cancelled_id(row: LedgerRow) -> CancelledId:
    """Which message a row of `CancelledMessages` is."""
    return CancelledId(row["sweep_id"], row["message_key"])


@dataclass(frozen=True, kw_only=True)
class ChosenCancelled(AnyChosen):
    """Cancelled messages that are to be restored. `gone`: the number of given keys that lead
    to none.
    """

    exit_code: ExitCode = ExitCode.DONE
    ids: Collection[CancelledId] = field(repr=False)
    keys: Sequence[str] = field(repr=False)
    cancelled_by: str | None = field(repr=False)
    again: bool = field(repr=False)

    @property
    def lacking(self) -> int:
        """A command that cancelled nothing which may be restored also counts as missing."""
        return self.gone or int(not self.would_change)

    @property
    def is_exact(self) -> bool:
        return bool(self.keys)


def choose_cancelled(
    context: SweepContext,
    keys: Sequence[str] = (),
    command: str | None = None,
    *,
    again: bool = False,
    spark: "SparkSession | None" = None,
) -> ChosenCancelled:
    """The messages with these keys, or that a command cancelled, and that may be restored."""
    _refuse_unclear(keys, command)
    with command_ledger(context, spark) as ledger:
        settle_earlier(context, ledger)
        messages = CancelledMessages(ledger, context.store.source, keys, command)
        restored = set() if again else messages.restored()
        destinations: dict[CancelledId, str] = {
            cancelled_id(row): row["destination"] or ""
            for row in messages.rows()
            if cancelled_id(row) not in restored
        }
    found = {spelled_alike(one.key) for one in destinations}
    return ChosenCancelled(
        command=CommandName.RESTORE,
        source=context.store.source,
        would_change=len(destinations),
        gone=len({spelled_alike(key) for key in keys} - found),
        destinations=dict(Counter(destinations.values()).most_common()),
        ids=set(destinations),
        keys=keys,
        cancelled_by=command,
        again=again,
    )


def _refuse_unclear(keys: Sequence[str], command: str | None) -> None:
    if not keys and command is None:
        raise ConfigError(
            "`restore`: no messages are selected",
            advice="give the keys that they had, or --command with the id of the command that "
            "cancelled them",
        )
    if command is not None:
        try:
            UUID(command)
        except ValueError as error:
            raise ConfigError(
                f"--command {command!r} is not the id of a command",
                advice="`cancel` prints its id, and the ledger's `changes` has it as sweep_id",
            ) from error


@dataclass(frozen=True, slots=True)
class Restore:
    """The work of `restore`: these of the messages, due as before or at `due`. Messages that were
    restored before count as gone, unless they are wanted `again`.
    """

    messages: CancelledMessages
    chosen: Collection[CancelledId]
    limits: BatchLimits
    due: Moment | None = None
    again: bool = False

    def __call__(self, session: OperatorTask, run: SweepRun) -> Iterator[Tally]:
        todo = set(self.chosen)
        if not self.again:
            todo -= self.messages.restored()
        yield Tally(gone=len(self.chosen) - len(todo))
        due = None if self.due is None else micros(self.due.at(run.horizon.server_time))
        yield from put_back(session, run, self.limits, self._taken(todo, due))
        yield Tally(gone=len(todo))

    def _taken(self, todo: set[CancelledId], due_us: int | None) -> Iterator[Returning]:
        """The messages to restore, each once; takes them out of `todo`."""
        for row in self.messages.rows(*_STORED):
            if cancelled_id(row) in todo:
                todo.remove(cancelled_id(row))
                due = row[_DUE_BEFORE] if due_us is None else due_us
                yield Returning(_change(row), _TIMELESS if due is None else _message(row, due))


def _change(row: LedgerRow) -> Change:
    headers = row["headers"]
    if headers is None:
        headers = UnreadableHeadersError("The headers could not be read when it was cancelled")
    text, body = row["headers_text"] or "", row["body"]
    message = Message(row["message_key"], None, headers, text, body, row["destination"])
    return Change(ChangeKind.RESTORED, message, of=row["sweep_id"])


def _message(row: LedgerRow, due_us: int) -> NewMessage:
    due = instant_of(due_us)
    return NewMessage(
        row["destination"],
        row["headers"] or {},
        row["body"],
        due,
        row["headers_text"],
        None if micros(due) == due_us else due_us,
    )
