"""Replays messages that exhausted their attempts, and discards them: the work of two commands.

Each reads the fates of errors only when it runs alone and the ledger has all that earlier
commands did (see `change`). So of two replays, the second one finds the changes of the first. There
are two ways to replay a batch: deliver it to queues, or store it again.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from duesweep.core.change import Change, ChangeKind, CommandName, spellings
from duesweep.core.errors import MessageError
from duesweep.core.exhausted import (
    ErrorFilter,
    ErrorId,
    ErrorRow,
    KeptMessage,
    Replayable,
    make_replayable,
)
from duesweep.core.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID, BatchResult, Message
from duesweep.core.policy import BatchLimits, Paused, RateLimit, RateLimits
from duesweep.core.routing import UnknownDestination
from duesweep.core.times import Moment
from duesweep.core.world import StoreClock
from duesweep.drivers.statements import retry_lost_transactions, try_again
from duesweep.operations.change import Failure, Tally, put_back, settle_earlier
from duesweep.operations.errors import ErrorGroup, ExhaustedMessages, Fate, grouped
from duesweep.operations.messages import AnyChosen, refuse_unknown
from duesweep.queues.base import QueueSession
from duesweep.stores.base import Claim, NewMessage, OperatorTask, SweepRun
from duesweep.sweep.delivery import SliceDelivery, group_by_destination
from duesweep.sweep.job import SweepContext
from duesweep.sweep.waiting import Destinations

_LOST = "The ledger does not have it any more"
# A message without an answer is sent this many times, and none may be reached this often in a row.
_MOST_TRIES = 3
_NO_ANSWER = "The queue did not say whether the message arrived: it may have"
_NOT_SENT = "It was not sent: the messages before it took too long"
_PAUSED = "Its destination is paused: see `duesweep paused`"

# Errors by their keys and message ids.
_ByName = dict[str, list[ErrorRow]]
# Errors and their messages as they are replayed; the keys of the messages differ.
_Batch = Sequence[tuple[ErrorId, Replayable]]


class Delivery:
    """Delivers batches, and journals each part in the transaction that delivers it. Pauses and
    limits also hold for replays.
    """

    def __init__(
        self,
        session: OperatorTask,
        run: SweepRun,
        queue: QueueSession,
        context: SweepContext,
    ) -> None:
        self._session, self._run, self._queue = session, run, queue
        self._context, self._clock = context, context.world.clock
        clock = self._clock
        # This waits for limits itself.
        self._destinations = Destinations(context.breaker, RateLimits(), context.limits, clock)
        self._delivery = SliceDelivery(queue, clock, self._destinations)
        self._rng = context.world.chance()

    def run(self, batch: _Batch) -> Iterator[Tally]:
        """Deliver a batch, in parts between which the command may be stopped."""
        errors = {found.message.key: error for error, found in batch}
        with self._session.transaction():
            claim = self._session.hold(self._run, ())
        paused, free = self._separate(claim, [found.message for _, found in batch])
        if paused:
            yield Tally.refusing([_failure(errors[one.key], _PAUSED) for one in paused])
        unreadable, groups = group_by_destination(free)
        limits = {address: self._context.rate_limits.of(address) for address in groups}
        others = [message for message, _ in unreadable]
        others += [m for address in groups if not limits[address] for m in groups[address]]
        if others:
            yield self._deliver_part(others, errors)
        for address, limit in limits.items():
            if limit is not None:
                for part in self._at_pace(limit, groups[address]):
                    yield self._deliver_part(part, errors)

    def _separate(
        self, claim: Claim, messages: Sequence[Message]
    ) -> tuple[list[Message], Sequence[Message]]:
        return Paused(claim.paused, self._context.own_name).separate(messages)

    def _at_pace(self, limit: RateLimit, messages: list[Message]) -> Iterator[list[Message]]:
        """The messages in parts, each when the store says that it may go."""
        for start in range(0, len(messages), limit.at_once):
            part = messages[start : start + limit.at_once]
            self._clock.sleep(self._session.reserve(limit, len(part)))
            yield part

    def _deliver_part(self, part: Sequence[Message], errors: Mapping[str, ErrorId]) -> Tally:
        """Deliver messages. Messages without an answer are sent again, and unreached ones
        are tried as long as others are done.
        """
        waiting, delivered, idle = list(part), 0, 0
        unanswered: Counter[str] = Counter()
        failures: list[Failure] = []

        def fail(key: str, reason: str) -> None:
            # Whatever came later, it may have arrived.
            told = f"{_NO_ANSWER}; then: {reason}" if unanswered[key] else reason
            failures.append(_failure(errors[key], told))

        while waiting and idle < _MOST_TRIES:
            result = self._deliver(waiting, errors)
            delivered += len(result.delivered)
            for key, reason in self._faults(result):
                fail(key, reason)
            unanswered.update(message.key for message in result.released)
            idle = idle + 1 if len(result.unreached) == len(waiting) else 0
            waiting = list(result.unreached)
            for message in result.released:
                if unanswered[message.key] < _MOST_TRIES:
                    waiting.append(message)
                else:
                    failures.append(_failure(errors[message.key], _NO_ANSWER))
        for message in waiting:
            fail(message.key, _NOT_SENT)
        return Tally(changed=delivered) + Tally.refusing(failures)

    def _faults(self, result: BatchResult) -> Iterator[tuple[str, str]]:
        for message, error in result.faulty:
            yield message.key, str(error)
        reason = self._destinations.blocked_reason or "The destination is unavailable"
        for message in result.blocked:
            yield message.key, reason
        for message in result.held:
            yield message.key, _PAUSED

    def _deliver(self, messages: Sequence[Message], errors: Mapping[str, ErrorId]) -> BatchResult:
        """Deliver in one transaction; again if the server rolled it back."""
        return try_again(
            lambda: self._deliver_once(messages, errors),
            lambda _: self._queue.rollback(),
            self._clock,
            self._rng,
        )

    def _deliver_once(
        self, messages: Sequence[Message], errors: Mapping[str, ErrorId]
    ) -> BatchResult:
        with self._session.transaction():
            claim = self._session.hold(self._run, ())
            clock = StoreClock(claim.server_us, self._clock)
            held, free = self._separate(claim, messages)
            result = self._delivery.deliver_all(free, clock)
            result.held += held
            changes = [
                _change(errors[one.message.key], one.message)._replace(queue=one.queue)
                for one in result.delivered
            ]
            if changes:
                self._session.journal_changes(self._run, changes, clock.now_us())
                # The last step before the store's COMMIT. If that fails, and the queue has a
                # transaction of its own, the batch is not journalled, and may be replayed again.
                self._queue.commit()
        return result


def _change(error: ErrorId, message: Message) -> Change:
    return Change(ChangeKind.REPLAYED, message, of=error.sweep_id)


def _failure(error: ErrorId, reason: str) -> Failure:
    return Failure(error.key, error.sweep_id, reason)


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
    delivers: bool = True,
) -> ChosenErrors:
    """The errors that a filter means. What dead commands did with them is settled before: the
    ledger would call them open. `delivers`: whether queues have to be there. Raises `ConfigError`
    for a destination that neither an error nor a queue has: a typing error.
    """
    settle_earlier(context, messages.ledger)
    done = messages.fates()
    rows: dict[ErrorId, ErrorRow] = {}
    done_rows: dict[ErrorId, ErrorRow] = {}
    for row in messages.rows(wanted):
        kept = done_rows if row.id in done and not again else rows
        kept[row.id] = row
    is_replay = command is CommandName.REPLAY
    if is_replay and delivers and rows:
        context.queue.check(None)
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
    """The work of `errors replay`: messages go `to` a destination, or to their own if that is None;
    at once, or with `due` through the store, when they are due.
    """

    context: SweepContext
    messages: ExhaustedMessages
    chosen: ChosenErrors
    to: str | None = None
    due: Moment | None = None

    def __call__(self, session: OperatorTask, run: SweepRun) -> Iterator[Tally]:
        todo, done_before = _still_open(self.messages, self.chosen)
        yield done_before
        if todo and self.due is not None:
            due = self.due.at(run.horizon.server_time)
            for batch in self._batches(todo):
                yield _stored(session, run, batch, due)
        elif todo:
            with self.context.queue.open(session) as queue:
                delivery = Delivery(session, run, queue, self.context)
                for batch in self._batches(todo):
                    yield from delivery.run(batch)
        yield Tally.refusing([_failure(error, _LOST) for error in todo])

    def _batches(self, todo: dict[ErrorId, ErrorRow]) -> Iterator[_Batch]:
        # Answers come by keys.
        for batch in self.context.limits.pack(self._taken(todo), _size, _key):
            yield [(error, self._replayable(kept)) for error, kept in batch]

    def _taken(self, todo: dict[ErrorId, ErrorRow]) -> Iterator[tuple[ErrorId, KeptMessage]]:
        """The errors to be done, each once, taken out of `todo`."""
        for error, kept in self.messages.kept(todo):
            # A ledger that was restored may have a row twice.
            if todo.pop(error, None) is not None:
                yield error, kept

    def _replayable(self, kept: KeptMessage) -> Replayable:
        found = make_replayable(kept, self.context.own_name)
        if self.to is None or isinstance(found.message.headers, MessageError):
            return found
        message = found.message._replace(destination=self.to)
        return Replayable(message, found.stored, None)


def _stored(session: OperatorTask, run: SweepRun, batch: _Batch, due: datetime) -> Tally:
    """Store messages again, with a new Due; each is journalled in the transaction that stores
    it.
    """
    failures, readable = [], []
    for error, found in batch:
        message = found.message
        if isinstance(message.headers, MessageError):
            failures.append(_failure(error, str(message.headers)))
            continue
        new = NewMessage(message.destination, found.stored, message.body, due, found.stored_text)
        readable.append((_change(error, message), new))
    return Tally.refusing(failures) + put_back(session, run, readable)


def _size(one: tuple[ErrorId, KeptMessage]) -> int:
    return len(one[1].headers_text) + len(one[1].body or b"")


def _key(one: tuple[ErrorId, KeptMessage]) -> str:
    return one[1].key


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
