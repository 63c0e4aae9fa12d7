"""Messages of the ledger go back into the store; and `restore`, which takes cancelled ones. For
messages that exhausted their attempts see `replay`.

Each is stored and journalled in one transaction, so the ledger says of each whether it went back. A
command that puts messages back reads that when it runs alone, and when the ledger has all that
earlier ones did (see `command`): so of two such commands, the second one leaves out the messages of
the first. The next sweep delivers them as any other message: pauses, limits and outages need no
second engine.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from duesweep.core.change import Change, ChangeKind, CommandName, spelled_alike, spellings
from duesweep.core.errors import ConfigError, MessageError, UnreadableHeadersError
from duesweep.core.message import Message
from duesweep.core.policy import BatchSize
from duesweep.core.times import Moment
from duesweep.core.world import instant_of, micros
from duesweep.drivers.statements import retry_lost_transactions
from duesweep.ledger.base import CHANGES, MICROSECONDS, Among, Condition, LedgerRow
from duesweep.ledger.ledger import Ledger
from duesweep.operations.command import Changed, Chosen, Failure, Tally, act, settle_earlier
from duesweep.operations.endpoint import Endpoint, Stop
from duesweep.operations.opening import command_ledger
from duesweep.stores.messages import NewMessage
from duesweep.stores.people import OperatorTask
from duesweep.stores.sweeps import SweepRun

_DUE_BEFORE = f"due_before{MICROSECONDS}"
_STORED = (
    *("sweep_id", "message_key", "destination", _DUE_BEFORE),
    *("headers", "headers_text", "body"),
)
_TIMELESS = "it had no Due; set one with --to"


# A message that goes back into the store, and its change; or why it cannot.
Returning = tuple[Change, NewMessage | str]


def put_back(
    session: OperatorTask, run: SweepRun, batch_size: BatchSize, messages: Iterable[Returning]
) -> Iterator[Tally]:
    """Store a stream of messages in batches, except ones that cannot be stored."""
    for batch in batch_size.pack(messages, lambda one: _size(one[0].message)):
        known = [(change, new) for change, new in batch if isinstance(new, NewMessage)]
        unknown = [_failure(change, why) for change, why in batch if isinstance(why, str)]
        yield _put_back(session, run, known) + Tally.refusing(unknown)


def _size(message: Message) -> int:
    return len(message.headers_text) + len(message.body or b"")


def _failure(change: Change, reason: str) -> Failure:
    return Failure(change.message.key, change.of or "", reason)


def _put_back(
    session: OperatorTask, run: SweepRun, batch: Sequence[tuple[Change, NewMessage]]
) -> Tally:
    """All go in one transaction. If a row is refused, so do their halves, each in its own: SQL
    Server ends the whole transaction for some errors of a row.
    """
    if not batch:
        return Tally()
    try:
        _put_back_all(session, run, batch)
    except MessageError as error:
        if len(batch) == 1:
            return Tally.refusing([_failure(batch[0][0], str(error))])
        half = len(batch) // 2
        return _put_back(session, run, batch[:half]) + _put_back(session, run, batch[half:])
    return Tally(changed=len(batch))


@retry_lost_transactions
def _put_back_all(
    session: OperatorTask, run: SweepRun, messages: Sequence[tuple[Change, NewMessage]]
) -> None:
    with session.transaction():
        session.put_back(run, messages, session.hold(run, ()).server_us)


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

    def destinations(self, *, again: bool) -> dict[CancelledId, str]:
        """The destinations of the ones that were not restored yet; `again`: of all."""
        tables = {CHANGES: [*self._conditions()]}
        command = self.command or ""
        rows = self.ledger.ask("find_cancelled", tables, again=int(again), command=command)
        return {_cancelled_id(row): row["destination"] or "" for row in rows}

    def rows(self) -> Iterator[LedgerRow]:
        """The messages as they were stored, as a stream."""
        conditions = [*self._conditions(), Among("change", [ChangeKind.CANCELLED.value])]
        if self.command is not None:
            conditions.append(Among("sweep_id", [self.command]))
        return self.ledger.rows(CHANGES, _STORED, *conditions)

    def _conditions(self) -> Iterator[Condition]:
        yield Among("source", [self.source])
        if self.keys:
            yield Among("message_key", sorted(spellings(self.keys)))


def _cancelled_id(row: LedgerRow) -> CancelledId:
    """Which message a row of `CancelledMessages` is."""
    return CancelledId(row["sweep_id"], row["message_key"])


@dataclass(frozen=True, kw_only=True)
class ChosenCancelled(Chosen):
    """Cancelled messages that are to be restored. `gone`: the number of given keys that lead
    to none.
    """

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
    endpoint: Endpoint,
    keys: Sequence[str] = (),
    *,
    command: str | None = None,
    again: bool = False,
) -> ChosenCancelled:
    """Cancelled messages to restore: the ones with these keys, the ones that `command` cancelled,
    or both; `again`: also ones that were restored already.
    """
    command = _required_choice(keys, command)
    context = endpoint.context
    with command_ledger(context, endpoint.spark) as ledger:
        settle_earlier(context, ledger)
        messages = CancelledMessages(ledger, context.store.source, keys, command)
        destinations = messages.destinations(again=again)
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


def restore(
    endpoint: Endpoint,
    chosen: ChosenCancelled,
    *,
    due: Moment | None = None,
    reason: str | None = None,
    stop: Stop | None = None,
) -> Changed:
    """Store cancelled messages again as they were, due when they were or at `due`, each once. A
    reason has to be given for more than one message.
    """

    def work(ledger: Ledger, session: OperatorTask, run: SweepRun) -> Iterator[Tally]:
        messages = CancelledMessages(ledger, chosen.source, chosen.keys, chosen.cancelled_by)
        todo = set(chosen.ids)
        if not chosen.again:
            # Another command may have restored some since they were chosen.
            todo &= messages.destinations(again=False).keys()
        yield Tally(gone=len(chosen.ids) - len(todo))
        due_us = None if due is None else micros(due.at(run.horizon.server_time))
        taken = _taken(messages, todo, due_us)
        yield from put_back(session, run, endpoint.context.batch_size, taken)
        yield Tally(gone=len(todo))

    return act(endpoint, chosen, CommandName.RESTORE, work, reason=reason, stop=stop)


def _required_choice(keys: Sequence[str], command: str | None) -> str | None:
    """The command's id as the ledger writes it. Raises `ConfigError` if nothing is chosen."""
    if not keys and command is None:
        raise ConfigError(
            "`restore`: no messages are selected",
            advice="give the keys that they had, or --command with the id of the command that "
            "cancelled them",
        )
    if command is not None:
        try:
            return str(UUID(command))
        except ValueError as error:
            raise ConfigError(
                f"--command {command!r} is not the id of a command",
                advice="`cancel` prints its id, and the ledger's `changes` has it as sweep_id",
            ) from error
    return None


def _taken(
    messages: CancelledMessages, todo: set[CancelledId], due_us: int | None
) -> Iterator[Returning]:
    """The messages to restore, each once, due as before or then; takes them out of `todo`."""
    for row in messages.rows():
        if _cancelled_id(row) in todo:
            todo.remove(_cancelled_id(row))
            due = row[_DUE_BEFORE] if due_us is None else due_us
            yield _restored(row), _TIMELESS if due is None else _as_it_was(row, due)


def _restored(row: LedgerRow) -> Change:
    headers = row["headers"]
    if headers is None:
        headers = UnreadableHeadersError("The headers could not be read when it was cancelled")
    text, body = row["headers_text"] or "", row["body"]
    message = Message(row["message_key"], None, headers, text, body, row["destination"])
    return Change(ChangeKind.RESTORED, message, of=row["sweep_id"])


def _as_it_was(row: LedgerRow, due_us: int) -> NewMessage:
    due = instant_of(due_us)
    return NewMessage(
        row["destination"],
        row["headers"] or {},
        row["body"],
        due,
        row["headers_text"],
        None if micros(due) == due_us else due_us,
    )
