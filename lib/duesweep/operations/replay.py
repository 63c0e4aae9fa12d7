"""Replays messages that exhausted their attempts, and discards them: the work of two commands.

A replayed message goes into the store again, and the next sweep delivers it as any other: pauses,
limits and outages need no second engine. `put_back` says why each is replayed once.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from duesweep.core.change import Change, ChangeKind, CommandName, spellings
from duesweep.core.errors import MessageError
from duesweep.core.exhausted import ErrorFilter, ErrorId, ErrorRow, as_stored
from duesweep.core.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID, Message
from duesweep.core.policy import BatchLimits
from duesweep.core.routing import UnknownDestination
from duesweep.core.times import Moment
from duesweep.drivers.statements import retry_lost_transactions
from duesweep.operations.change import Failure, Tally, settle_earlier
from duesweep.operations.errors import ErrorGroup, ExhaustedMessages, Fate, grouped
from duesweep.operations.messages import AnyChosen, refuse_unknown
from duesweep.operations.put_back import Returning, put_back
from duesweep.stores.base import NewMessage, OperatorTask, SweepRun
from duesweep.sweep.job import SweepContext
from duesweep.sweep.queues_check import find_missing_queues

_LOST = "The ledger does not have it any more"

# Errors by their keys and message ids.
_ByName = dict[str, list[ErrorRow]]


@dataclass(frozen=True, kw_only=True)
class ChosenErrors(AnyChosen):
    """Errors that `command` is about: `rows` are to be done, unless another command does them
    before. `done_rows` are left out, because they are `done`; with `again` none are. `ids` are the
    given ones. `copies`: how many have a copy in an error queue, by queue. `unknown_destination`:
    the filter's, if no error was ever for it.
    """

    rows: Mapping[ErrorId, ErrorRow]
    done_rows: Mapping[ErrorId, ErrorRow] = field(default_factory=dict)
    done: Mapping[ErrorId, Fate] = field(default_factory=dict)
    again: bool = False
    ids: Sequence[str] = ()
    copies: Mapping[str, int] = field(default_factory=dict)
    unknown_destination: UnknownDestination | None = None

    @property
    def is_exact(self) -> bool:
        """Whether ids were given that lead to one error each at most."""
        return bool(self.ids) and all(len(self.named(each)) <= 1 for each in self.ids)

    def is_done(self, changed: int, gone: int) -> bool:
        """Whether each id that was given led to an error that was done, and by this command; errors
        of a filter may have been done by another one.
        """
        if not all(self.named(each) for each in self.ids):
            return False
        return changed + (0 if self.is_exact else gone) >= self.would_change

    def named(self, wanted: str) -> Sequence[ErrorRow]:
        """Those to be done that this id leads to."""
        return _named(self._rows_by_name, wanted)

    def named_before(self, wanted: str) -> Sequence[ErrorRow]:
        """The errors that are left out."""
        return _named(self._done_by_name, wanted)

    @cached_property
    def _rows_by_name(self) -> _ByName:
        return _by_name(self.rows)

    @cached_property
    def _done_by_name(self) -> _ByName:
        return _by_name(self.done_rows)

    @property
    def groups(self) -> Sequence[ErrorGroup]:
        """The errors to be done, in groups."""
        seen = ((row, self.done.get(error)) for error, row in self.rows.items())
        return grouped(seen)


def _by_name(rows: Mapping[ErrorId, ErrorRow]) -> _ByName:
    found: _ByName = defaultdict(list)
    for row in rows.values():
        found[row.id.key].append(row)
        if row.message_id is not None:
            found[row.message_id].append(row)
    return found


def _named(rows: _ByName, wanted: str) -> Sequence[ErrorRow]:
    # Its key may be its message id, or fit two spellings.
    found = {row.id: row for name in spellings([wanted]) for row in rows.get(name, ())}
    return list(found.values())


def choose_errors(
    context: SweepContext,
    messages: ExhaustedMessages,
    wanted: ErrorFilter,
    command: CommandName,
    *,
    again: bool = False,
) -> ChosenErrors:
    """The errors that a filter means. What dead commands did with them is settled before: the
    ledger would call them open. Raises `ConfigError` for a destination that neither an error nor a
    queue has: a typing error.
    """
    settle_earlier(context, messages.ledger)
    done = messages.fates()
    rows: dict[ErrorId, ErrorRow] = {}
    done_rows: dict[ErrorId, ErrorRow] = {}
    found = list(messages.rows(wanted))
    keys = {row.id.key for row in found}
    for row in found:
        fate = done.get(row.id)
        # A message that was replayed and has failed again is the later error.
        is_left_out = fate is not None and (fate.new_key in keys or not again)
        (done_rows if is_left_out else rows)[row.id] = row
    is_replay = command is CommandName.REPLAY
    unknown = None if rows or done_rows else messages.unknown_destination(wanted)
    refuse_unknown(context, unknown, "error", "`duesweep errors list` shows the errors")
    return ChosenErrors(
        command=command,
        source=messages.source,
        would_change=len(rows),
        gone=len(done_rows),
        rows=rows,
        done_rows=done_rows,
        done=done,
        again=again,
        ids=wanted.ids,
        copies=messages.in_error_queues(rows) if is_replay and rows else {},
        unknown_destination=unknown,
    )


def _still_open(
    messages: ExhaustedMessages, chosen: ChosenErrors
) -> tuple[dict[ErrorId, ErrorRow], Tally]:
    """The work when the command runs alone, and the errors done before."""
    done = {} if chosen.again else messages.fates()
    rows = {error: row for error, row in chosen.rows.items() if error not in done}
    return rows, Tally(gone=len(chosen.rows) - len(rows))


@dataclass(frozen=True, slots=True)
class Replay:
    """The work of `errors replay`: messages go into the store again, `to` a destination, or to
    their own if that is None. They are `due` then; None: now.
    """

    context: SweepContext
    messages: ExhaustedMessages
    chosen: ChosenErrors
    to: str | None = None
    due: Moment | None = None

    def __call__(self, session: OperatorTask, run: SweepRun) -> Iterator[Tally]:
        todo, done_before = _still_open(self.messages, self.chosen)
        yield done_before
        if todo:
            # A sweep would only give up their messages again.
            nowhere = find_missing_queues(self.context, {*map(self._destination, todo.values())})
            due = (self.due or Moment()).at(run.horizon.server_time)
            yield from put_back(session, run, self.context.limits, self._taken(todo, nowhere, due))
        yield Tally.refusing([Failure(error.key, error.sweep_id, _LOST) for error in todo])

    def _destination(self, row: ErrorRow) -> str:
        return self.to or row.destination or self.context.own_name

    def _taken(
        self, todo: dict[ErrorId, ErrorRow], nowhere: Mapping[str, str], due: datetime
    ) -> Iterator[Returning]:
        """The messages of these errors, each once; takes them out of `todo`."""
        for error, kept in self.messages.kept(todo):
            # A ledger that was restored may have a row twice.
            if (row := todo.pop(error, None)) is None:
                continue
            message, text = as_stored(kept, self.context.own_name), None
            if self.to is None:
                text = message.headers_text
            else:
                message = message._replace(destination=self.to)
            change = Change(ChangeKind.REPLAYED, message, of=error.sweep_id)
            reason = nowhere.get(self._destination(row))
            if isinstance(message.headers, MessageError):
                yield Returning(change, str(message.headers))
            elif reason is not None:
                yield Returning(change, reason)
            else:
                new = NewMessage(message.destination, message.headers, message.body, due, text)
                yield Returning(change, new)


@dataclass(frozen=True, slots=True)
class Discard:
    """The work of `errors discard`."""

    messages: ExhaustedMessages
    chosen: ChosenErrors
    limits: BatchLimits

    def __call__(self, session: OperatorTask, run: SweepRun) -> Iterator[Tally]:
        todo, done_before = _still_open(self.messages, self.chosen)
        yield done_before
        changes, most = [_discarded(row) for row in todo.values()], self.limits.rows
        for start in range(0, len(changes), most):
            batch = changes[start : start + most]
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
