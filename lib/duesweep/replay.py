"""Replays messages that exhausted their attempts, and discards them: the work of two commands.

Each reads what became of errors only when it runs alone and the ledger has all that earlier
commands did (see `steer`). So of two replays, the second one finds what the first one did.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from duesweep.core.change import Change, ChangeKind
from duesweep.core.errors import MessageError
from duesweep.core.exhausted import (
    ErrorFilter,
    ErrorId,
    ErrorRow,
    KeptMessage,
    Replayable,
    make_replayable,
)
from duesweep.core.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID, Message
from duesweep.core.times import Moment
from duesweep.drivers.statements import retry_lost_transactions
from duesweep.exhausted import ExhaustedMessages, Fate
from duesweep.replay_ways import Account, Delivery, Item, PutBack
from duesweep.steer import Tally
from duesweep.stores.base import OperatorTask, SweepRun
from duesweep.sweep.job import SweepContext

_LOST = "The ledger does not have it any more"


@dataclass(frozen=True, slots=True)
class Found:
    """Errors that a filter means: `rows` are to be done. `done_rows` are left out, because of what
    was done with them; `done` has that, also of rows that are wanted again.
    """

    rows: Mapping[ErrorId, ErrorRow]
    done_rows: Mapping[ErrorId, ErrorRow]
    done: Mapping[ErrorId, Fate]


def find_errors(messages: ExhaustedMessages, chosen: ErrorFilter, *, again: bool = False) -> Found:
    """What a command would act on, as far as the ledger knows now."""
    done = messages.fates()
    rows: dict[ErrorId, ErrorRow] = {}
    done_rows: dict[ErrorId, ErrorRow] = {}
    for row in messages.rows(chosen):
        kept = done_rows if row.id in done and not again else rows
        kept[row.id] = row
    return Found(rows, done_rows, done)


@dataclass(frozen=True, slots=True)
class Choice:
    """Errors that an operator chose. Those that were replayed or discarded meanwhile are left out,
    unless they are wanted `again`.
    """

    messages: ExhaustedMessages
    rows: Mapping[ErrorId, ErrorRow]
    again: bool = False

    def still_open(self, account: Account) -> dict[ErrorId, ErrorRow]:
        """What there is to do."""
        if self.again:
            return dict(self.rows)
        done = self.messages.fates()
        rows = {error: row for error, row in self.rows.items() if error not in done}
        account.done_before = len(self.rows) - len(rows)
        return rows


@dataclass(frozen=True, slots=True)
class Target:
    """Where messages go: to `destination`, or to their own if it is None; at once, or with `due`
    through the store, when they are due.
    """

    destination: str | None = None
    due: Moment | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """The work of `errors replay`. `endpoint` is the endpoint's name."""

    context: SweepContext
    endpoint: str
    choice: Choice
    target: Target = field(default_factory=Target)
    account: Account = field(default_factory=Account)

    def __call__(self, session: OperatorTask, run: SweepRun) -> Iterator[Tally]:
        """Replay batch after batch."""
        todo = self.choice.still_open(self.account)
        if todo:
            with self._way(session, run) as way:
                for batch in self._batches(todo):
                    yield from way.run(batch, self.account)
        for error in todo:
            self.account.fail(error, _LOST)

    @contextmanager
    def _way(self, session: OperatorTask, run: SweepRun) -> Iterator[Delivery | PutBack]:
        due = self.target.due
        if due is not None:
            yield PutBack(session, run, due.at(run.horizon.server_time))
            return
        with self.context.queue.open(session) as queue:
            yield Delivery(session, run, queue, self.context)

    def _batches(self, todo: dict[ErrorId, ErrorRow]) -> Iterator[list[Item]]:
        """Batches within the sweep's limits, taken out of `todo`. A key is in a batch once: answers
        come by keys.
        """
        limits = self.context.limits
        batch: dict[str, Item] = {}
        weight = 0
        for error, kept in self.choice.messages.kept(todo):
            # A ledger that was restored may have a row twice.
            if todo.pop(error, None) is None:
                continue
            size = len(kept.headers_text) + len(kept.body or b"")
            is_full = len(batch) >= limits.rows or weight + size > limits.bytes
            if batch and (is_full or kept.key in batch):
                yield list(batch.values())
                batch, weight = {}, 0
            batch[kept.key] = Item(error, self._replayable(kept))
            weight += size
        if batch:
            yield list(batch.values())

    def _replayable(self, kept: KeptMessage) -> Replayable:
        found, elsewhere = make_replayable(kept, self.endpoint), self.target.destination
        if elsewhere is None or isinstance(found.message.headers, MessageError):
            return found
        message = found.message._replace(destination=elsewhere)
        return Replayable(message, found.stored, None)


@dataclass(frozen=True, slots=True)
class Discard:
    """The work of `errors discard`."""

    context: SweepContext
    choice: Choice
    account: Account = field(default_factory=Account)

    def __call__(self, session: OperatorTask, run: SweepRun) -> Iterator[Tally]:
        """Discard batch after batch."""
        todo = list(self.choice.still_open(self.account).values())
        rows = self.context.limits.rows
        for start in range(0, len(todo), rows):
            batch = [_discarded(row) for row in todo[start : start + rows]]
            _discard(session, run, batch)
            yield Tally(changed=len(batch))


@retry_lost_transactions
def _discard(session: OperatorTask, run: SweepRun, changes: Sequence[Change]) -> None:
    with session.transaction():
        session.journal_changes(run, changes, session.hold(run, ()).server_us)


def _discarded(row: ErrorRow) -> Change:
    headers = {MESSAGE_ID: row.message_id, ENCLOSED_MESSAGE_TYPES: row.message_type}
    message = Message(row.id.key, None, headers, "", None, row.destination)
    return Change(ChangeKind.DISCARDED, message, of=row.id.sweep_id)
