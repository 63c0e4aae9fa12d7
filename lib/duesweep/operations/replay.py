"""Messages that exhausted their attempts: `errors replay` puts them back as `restore` does, and
`errors discard` marks them as done.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from duesweep.core.change import Change, ChangeKind, CommandName, spellings
from duesweep.core.errors import MessageError
from duesweep.core.exhausted import ErrorFilter, ErrorId, ErrorRow, as_stored
from duesweep.core.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID, Message
from duesweep.core.times import Moment
from duesweep.drivers.statements import retry_lost_transactions
from duesweep.ledger.ledger import Ledger
from duesweep.operations.command import (
    Changed,
    Chosen,
    Failure,
    Tally,
    act,
    refuse_unclear,
    refuse_unknown,
    settle_earlier,
)
from duesweep.operations.endpoint import Endpoint, Stop
from duesweep.operations.exhausted import ErrorGroup, ExhaustedMessages, grouped, open_errors
from duesweep.operations.restore import Returning, put_back
from duesweep.stores.messages import NewMessage
from duesweep.stores.people import OperatorTask
from duesweep.stores.sweeps import SweepRun
from duesweep.sweep.job import SweepContext
from duesweep.sweep.queues_check import find_missing_queues

_LOST = "The ledger does not have it any more"


class ErrorsOfId(NamedTuple):
    """The errors to which an id leads: the ones to be done, and the ones that are left out."""

    rows: list[ErrorRow]
    done_rows: list[ErrorRow]


@dataclass(frozen=True, kw_only=True)
class ChosenErrors(Chosen):
    """Errors that `command` is about: `rows` are to be done, unless another command does them
    before. `done_rows` are left out, because they are done; with `again` none are. `ids` are the
    given ones. `copies`: how many have a copy in an error queue, by queue.
    """

    rows: Mapping[ErrorId, ErrorRow] = field(repr=False)
    done_rows: Mapping[ErrorId, ErrorRow] = field(default_factory=dict, repr=False)
    again: bool = False
    ids: Sequence[str] = ()
    copies: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_exact(self) -> bool:
        """Whether ids were given that lead to one error each at most."""
        return bool(self.ids) and all(len(each.rows) <= 1 for each in self.by_id.values())

    def is_done(self, changed: int, gone: int) -> bool:
        """Whether each id that was given led to an error that was done, and by this command; errors
        of a filter may have been done by another one.
        """
        if not all(each.rows for each in self.by_id.values()):
            return False
        return changed + (0 if self.is_exact else gone) >= self.would_change

    @cached_property
    def by_id(self) -> Mapping[str, ErrorsOfId]:
        """The errors of each given id. It is a key or a message id, and may fit two spellings."""
        found = {each: ErrorsOfId([], []) for each in self.ids}
        given: defaultdict[str | None, set[str]] = defaultdict(set)
        for each in self.ids:
            for name in spellings([each]):
                given[name].add(each)
        for row in (*self.rows.values(), *self.done_rows.values()):
            for each in given[row.key] | given[row.message_id]:
                of_id = found[each]
                (of_id.rows if row.id in self.rows else of_id.done_rows).append(row)
        return found

    @property
    def groups(self) -> Sequence[ErrorGroup]:
        """The errors to be done, in groups."""
        return grouped(self.rows.values())


def choose_errors(
    endpoint: Endpoint,
    wanted: ErrorFilter,
    command: CommandName = CommandName.REPLAY,
    *,
    again: bool = False,
    everything: bool = False,
) -> ChosenErrors:
    """The errors that a filter means, which `command` is about; `again`: also ones that were
    replayed or discarded before. What dead commands did with them is settled before: the ledger
    would call them open. Raises `ConfigError` for a destination that neither an error nor a queue
    has: a typing error.
    """
    refuse_unclear(command, is_empty=wanted.is_empty, everything=everything)
    rows: dict[ErrorId, ErrorRow] = {}
    done_rows: dict[ErrorId, ErrorRow] = {}
    with open_errors(endpoint) as messages:
        settle_earlier(endpoint.context, messages.ledger)
        found = list(messages.chosen(wanted))
        keys = {row.key for row in found}
        for row in found:
            # A message that was replayed and has failed again is the later error.
            is_left_out = row.change is not None and (row.new_key in keys or not again)
            (done_rows if is_left_out else rows)[row.id] = row
        unknown = None if found else messages.unknown_destination(wanted)
        is_replay = command is CommandName.REPLAY
        copies = messages.in_error_queues(rows) if is_replay and rows else {}
    refuse_unknown(endpoint.context, unknown, "error", "`duesweep errors list` shows the errors")
    return ChosenErrors(
        command=command,
        source=messages.source,
        would_change=len(rows),
        gone=len(done_rows),
        destinations=dict(Counter(row.destination or "" for row in rows.values()).most_common()),
        rows=rows,
        done_rows=done_rows,
        again=again,
        ids=wanted.ids,
        copies=copies,
        unknown_destination=unknown,
    )


def replay(
    endpoint: Endpoint,
    wanted: ErrorFilter | ChosenErrors,
    *,
    to: str | None = None,
    due: Moment | None = None,
    reason: str | None = None,
    everything: bool = False,
    stop: Stop | None = None,
) -> Changed:
    """Store errors again, each once, for the next sweep: to their destinations or `to` another
    one, due now or at `due`. Otherwise as `cancel`.
    """
    command = CommandName.REPLAY
    if isinstance(wanted, ErrorFilter):
        wanted = choose_errors(endpoint, wanted, command, everything=everything)
    chosen = wanted

    def work(ledger: Ledger, session: OperatorTask, run: SweepRun) -> Iterator[Tally]:
        messages = ExhaustedMessages(ledger, chosen.source)
        return Replay(endpoint.context, messages, chosen, to, due)(session, run)

    return act(endpoint, chosen, command, work, reason=reason, stop=stop)


def discard(
    endpoint: Endpoint,
    wanted: ErrorFilter | ChosenErrors,
    *,
    reason: str | None = None,
    everything: bool = False,
    stop: Stop | None = None,
) -> Changed:
    """Mark errors as done without a replay. The ledger keeps them. Otherwise as `cancel`."""
    command = CommandName.DISCARD
    if isinstance(wanted, ErrorFilter):
        wanted = choose_errors(endpoint, wanted, command, everything=everything)
    chosen = wanted

    def work(ledger: Ledger, session: OperatorTask, run: SweepRun) -> Iterator[Tally]:
        todo, done_before = _still_open(ExhaustedMessages(ledger, chosen.source), chosen)
        yield done_before
        changes, most = [_discarded(row) for row in todo.values()], endpoint.context.batch_size.rows
        for start in range(0, len(changes), most):
            batch = changes[start : start + most]
            _discard(session, run, batch)
            yield Tally(changed=len(batch))

    return act(endpoint, chosen, command, work, reason=reason, stop=stop)


def _still_open(
    messages: ExhaustedMessages, chosen: ChosenErrors
) -> tuple[dict[ErrorId, ErrorRow], Tally]:
    """The work when the command runs alone, and the errors done before."""
    done = set() if chosen.again else messages.done()
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
            yield from put_back(
                session, run, self.context.batch_size, self._taken(todo, nowhere, due)
            )
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
                yield change, str(message.headers)
            elif reason is not None:
                yield change, reason
            else:
                headers, body = message.headers, message.body
                yield change, NewMessage(message.destination, headers, body, due, text)


@retry_lost_transactions
def _discard(session: OperatorTask, run: SweepRun, changes: Sequence[Change]) -> None:
    with session.transaction():
        session.journal_changes(run, changes, session.hold(run, ()).server_us)


def _discarded(row: ErrorRow) -> Change:
    headers = {MESSAGE_ID: row.message_id, ENCLOSED_MESSAGE_TYPES: row.message_type}
    message = Message(row.key, None, headers, "", None, row.destination)
    return Change(ChangeKind.DISCARDED, message, of=row.sweep_id)
