"""Replays messages that exhausted their attempts, and discards them: the work of two commands.

Each reads what became of errors only when it runs alone and the ledger has all that earlier
commands did (see `change`). So of two replays, the second one finds what the first one did. There
are two ways to replay a batch: deliver it to queues, or put it back into the store.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from duesweep.core.change import Change, ChangeKind, Command, CommandName, spellings
from duesweep.core.errors import ExitCode, MessageError
from duesweep.core.exhausted import (
    ErrorFilter,
    ErrorId,
    ErrorRow,
    KeptMessage,
    Replayable,
    make_replayable,
)
from duesweep.core.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID, BatchResult, Message
from duesweep.core.policy import Paused, RateLimit, RateLimits
from duesweep.core.routing import UnknownDestination
from duesweep.core.times import Moment
from duesweep.core.world import StoreClock
from duesweep.drivers.statements import retry_lost_transactions, try_again
from duesweep.ledger.ledger import Ledger
from duesweep.operations.change import (
    CommandReport,
    Tally,
    given_by,
    put_back,
    require_reason,
    run_command,
    settle_earlier,
)
from duesweep.operations.errors import ErrorGroup, ExhaustedMessages, Fate, grouped
from duesweep.operations.messages import Tell, refuse_unknown, tell_nobody
from duesweep.queues.base import QueueSession
from duesweep.stores.base import Claim, NewMessage, OperatorTask, SweepRun
from duesweep.sweep.delivery import SliceDelivery, group_by_destination
from duesweep.sweep.job import SweepContext
from duesweep.sweep.stop import Stop
from duesweep.sweep.waiting import DestinationBreakers, SliceLimits

_LOST = "The ledger does not have it any more"
# So often a message that gets no answer is sent, and so often in a row none may be reached.
_MOST_TRIES = 3
_NO_ANSWER = "The queue did not say whether the message arrived: it may have"
_NOT_SENT = "It was not sent: the messages before it took too long"
_PAUSED = "Its destination is paused: see `duesweep paused`"
_MOST_FAILURES = 1_000

# Errors by their keys and message ids.
_ByName = dict[str, list[ErrorRow]]


class Item(NamedTuple):
    """An error, and its message as it is replayed."""

    error: ErrorId
    found: Replayable

    @property
    def key(self) -> str:
        """The message's key, by which answers come."""
        return self.found.message.key


class Failure(NamedTuple):
    """An error that was not replayed, and why."""

    key: str
    sweep_id: str
    reason: str


@dataclass(slots=True)
class Account:
    """What came of the errors that were chosen. `done_before` were replayed or discarded by the
    time that this command ran; `failures` are the first of those that could not be replayed.
    """

    done_before: int = 0
    failed: int = 0
    failures: list[Failure] = field(default_factory=list)

    def fail(self, error: ErrorId, reason: str) -> None:
        """Note that an error was not replayed."""
        self.failed += 1
        if len(self.failures) < _MOST_FAILURES:
            self.failures.append(Failure(error.key, error.sweep_id, reason))


class Delivery:
    """Delivers batches, and journals each part in the transaction that delivers it. Pauses and
    limits hold for replays, too.
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
        breakers = DestinationBreakers(context.breaker, clock)
        # This waits for limits itself.
        no_limits = SliceLimits(RateLimits(), clock)
        self._delivery = SliceDelivery(queue, clock, breakers, no_limits, tracing=context.tracing)
        self._rng = context.world.chance()

    def run(self, batch: Sequence[Item], account: Account) -> Iterator[Tally]:
        """Deliver a batch, in parts between which the command may be stopped."""
        errors = {item.key: item.error for item in batch}
        free = self._without_paused([item.found.message for item in batch], errors, account)
        if len(free) < len(batch):
            yield Tally(refused=len(batch) - len(free))
        unreadable, groups = group_by_destination(free)
        limits = {address: self._context.rate_limits.of(address) for address in groups}
        others = [message for message, _ in unreadable]
        others += [m for address in groups if not limits[address] for m in groups[address]]
        if others:
            yield self._deliver_part(others, errors, account)
        for address, limit in limits.items():
            if limit is not None:
                for part in self._at_pace(limit, groups[address]):
                    yield self._deliver_part(part, errors, account)

    def _without_paused(
        self, messages: Sequence[Message], errors: Mapping[str, ErrorId], account: Account
    ) -> Sequence[Message]:
        with self._session.transaction():
            held, free = self._separate(self._session.hold(self._run, ()), messages)
        for message in held:
            account.fail(errors[message.key], _PAUSED)
        return free

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

    def _deliver_part(
        self, part: Sequence[Message], errors: Mapping[str, ErrorId], account: Account
    ) -> Tally:
        """Deliver messages. Those without an answer are sent again, and those that were not reached
        go on as long as others are done.
        """
        waiting, delivered, idle = list(part), 0, 0
        unanswered: Counter[str] = Counter()

        def fail(key: str, reason: str) -> None:
            # Whatever came later, it may have arrived.
            told = f"{_NO_ANSWER}; then: {reason}" if unanswered[key] else reason
            account.fail(errors[key], told)

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
                    account.fail(errors[message.key], _NO_ANSWER)
        for message in waiting:
            fail(message.key, _NOT_SENT)
        return Tally(changed=delivered, refused=len(part) - delivered)

    def _faults(self, result: BatchResult) -> Iterator[tuple[str, str]]:
        for message, error in result.faulty:
            yield message.key, str(error)
        reason = self._delivery.blocked_reason or "The destination takes nothing now"
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


class PutBack:
    """Stores batches again, with a new Due, and journals each in the same transaction."""

    def __init__(self, session: OperatorTask, run: SweepRun, due: datetime) -> None:
        self._session, self._run, self._due = session, run, due

    def run(self, batch: Sequence[Item], account: Account) -> Iterator[Tally]:
        """Store a batch."""
        readable = []
        for item in batch:
            fault = item.found.message.headers
            if isinstance(fault, MessageError):
                account.fail(item.error, str(fault))
            else:
                readable.append((_change(item.error, item.found.message), self._new(item.found)))
        refused = put_back(self._session, self._run, readable)
        for change, reason in refused:
            account.fail(ErrorId(change.of or "", change.message.key), reason)
        changed = len(readable) - len(refused)
        yield Tally(changed=changed, refused=len(batch) - changed)

    def _new(self, found: Replayable) -> NewMessage:
        message = found.message
        return NewMessage(
            message.destination, found.stored, message.body, self._due, found.stored_text
        )


def _change(error: ErrorId, message: Message) -> Change:
    return Change(ChangeKind.REPLAYED, message, of=error.sweep_id)


@dataclass(frozen=True, kw_only=True)
class ChosenErrors:
    """Errors that `command` is about: `rows` are to be done, unless somebody does them meanwhile.
    `done_rows` are left out, because of what was `done` with them; with `again` none are. `ids` are
    those that were given. `copies`: how many have a copy in an error queue, by queue.
    `unknown_destination`: that of the filter, if no error was ever for it.
    """

    command: CommandName
    source: str
    rows: Mapping[ErrorId, ErrorRow]
    done_rows: Mapping[ErrorId, ErrorRow] = field(default_factory=dict)
    done: Mapping[ErrorId, Fate] = field(default_factory=dict)
    again: bool = False
    ids: Sequence[str] = ()
    copies: Mapping[str, int] = field(default_factory=dict)
    unknown_destination: UnknownDestination | None = None

    @property
    def would_change(self) -> int:
        """How many are to be done."""
        return len(self.rows)

    @property
    def is_exact(self) -> bool:
        """Whether ids were given that lead to one error each at most."""
        return bool(self.ids) and all(len(self.named(each)) <= 1 for each in self.ids)

    @property
    def is_whole(self) -> bool:
        """Whether each id that was given leads to an error that is to be done."""
        return all(self.named(each) for each in self.ids)

    def named(self, wanted: str) -> Sequence[ErrorRow]:
        """Those to be done that this id leads to."""
        return _named(self._rows_by_name, wanted)

    def named_before(self, wanted: str) -> Sequence[ErrorRow]:
        """Those that are left out."""
        return _named(self._done_by_name, wanted)

    @cached_property
    def _rows_by_name(self) -> _ByName:
        return _by_name(self.rows)

    @cached_property
    def _done_by_name(self) -> _ByName:
        return _by_name(self.done_rows)

    @property
    def groups(self) -> Sequence[ErrorGroup]:
        """What is to be done, in groups."""
        seen = ((row, self.done.get(error)) for error, row in self.rows.items())
        return grouped(seen)

    @property
    def undone(self) -> "Replayed | Discarded":
        """What came of it if nobody says more."""
        return _ended(self, Account(), None)

    @property
    def declined(self) -> "Replayed | Discarded":
        """What came of it if somebody says no."""
        return replace(self.undone, exit_code=ExitCode.MESSAGES_FAILED)


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
    ledger: Ledger,
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
    messages = ExhaustedMessages(ledger, context.store.source)
    messages.check()
    settle_earlier(context, ledger)
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
        rows=rows,
        done_rows=done_rows,
        done=done,
        again=again,
        ids=wanted.ids,
        copies=messages.in_error_queues(rows) if is_replay and rows else {},
        unknown_destination=unknown,
    )


def _still_open(
    messages: ExhaustedMessages, chosen: ChosenErrors, account: Account
) -> dict[ErrorId, ErrorRow]:
    """What there is to do when the command runs alone."""
    if chosen.again:
        return dict(chosen.rows)
    done = messages.fates()
    rows = {error: row for error, row in chosen.rows.items() if error not in done}
    account.done_before = len(chosen.rows) - len(rows)
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
    """The work of `errors replay`."""

    context: SweepContext
    messages: ExhaustedMessages
    chosen: ChosenErrors
    target: Target = field(default_factory=Target)
    account: Account = field(default_factory=Account)

    def __call__(self, session: OperatorTask, run: SweepRun) -> Iterator[Tally]:
        """Replay batch after batch."""
        todo = _still_open(self.messages, self.chosen, self.account)
        if todo:
            with self._way(session, run) as way:
                # Answers come by keys.
                for batch in self.context.limits.pack(self._taken(todo), _size, _key):
                    items = [Item(error, self._replayable(kept)) for error, kept in batch]
                    yield from way.run(items, self.account)
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

    def _taken(self, todo: dict[ErrorId, ErrorRow]) -> Iterator[tuple[ErrorId, KeptMessage]]:
        """What is to do, each error once, taken out of `todo`."""
        for error, kept in self.messages.kept(todo):
            # A ledger that was restored may have a row twice.
            if todo.pop(error, None) is not None:
                yield error, kept

    def _replayable(self, kept: KeptMessage) -> Replayable:
        found, elsewhere = make_replayable(kept, self.context.own_name), self.target.destination
        if elsewhere is None or isinstance(found.message.headers, MessageError):
            return found
        message = found.message._replace(destination=elsewhere)
        return Replayable(message, found.stored, None)


def _size(one: tuple[ErrorId, KeptMessage]) -> int:
    return len(one[1].headers_text) + len(one[1].body or b"")


def _key(one: tuple[ErrorId, KeptMessage]) -> str:
    return one[1].key


@dataclass(frozen=True, slots=True)
class Discard:
    """The work of `errors discard`."""

    context: SweepContext
    messages: ExhaustedMessages
    chosen: ChosenErrors
    account: Account = field(default_factory=Account)

    def __call__(self, session: OperatorTask, run: SweepRun) -> Iterator[Tally]:
        """Discard batch after batch."""
        todo = list(_still_open(self.messages, self.chosen, self.account).values())
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What became of the errors that were chosen. `command_id` None: nothing was to be done, or was
    done. `done_before` were replayed or discarded before; `failures` are the first of the `failed`.
    """

    command: CommandName
    source: str
    command_id: str | None
    chosen: int
    replayed: int
    done_before: int
    failed: int
    failures: Sequence[Failure]
    is_stopped: bool
    ledger_error: str | None
    unknown_destination: UnknownDestination | None
    exit_code: ExitCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """The same of errors that were discarded."""

    command: CommandName
    source: str
    command_id: str | None
    chosen: int
    discarded: int
    done_before: int
    failed: int
    failures: Sequence[Failure]
    is_stopped: bool
    ledger_error: str | None
    unknown_destination: UnknownDestination | None
    exit_code: ExitCode


def act_on_errors(
    context: SweepContext,
    ledger: Ledger,
    chosen: ChosenErrors,
    target: Target,
    *,
    reason: str | None,
    stop: Stop | None = None,
    tell: Tell = tell_nobody,
) -> Replayed | Discarded:
    """Replay or discard what was chosen. `target` is for a replay."""
    if not chosen.rows:
        return chosen.undone
    require_reason(reason, len(chosen.rows))
    messages = ExhaustedMessages(ledger, chosen.source)
    work: Replay | Discard = (
        Replay(context, messages, chosen, target)
        if chosen.command is CommandName.REPLAY
        else Discard(context, messages, chosen)
    )
    command = Command(chosen.command, given_by(), reason)
    report = run_command(context, ledger, command, work, stop=stop, tell=tell)
    return _ended(chosen, work.account, report)


def _ended(
    chosen: ChosenErrors, account: Account, report: CommandReport | None
) -> Replayed | Discarded:
    changed = 0 if report is None else report.tally.changed
    facts: dict[str, Any] = {
        "command": chosen.command,
        "source": chosen.source,
        "command_id": None if report is None else report.command_id,
        "chosen": len(chosen.rows),
        "done_before": len(chosen.done_rows) + account.done_before,
        "failed": account.failed,
        "failures": tuple(account.failures),
        "is_stopped": report is not None and report.is_stopped,
        "ledger_error": None if report is None else report.ledger_error,
        "unknown_destination": chosen.unknown_destination,
        "exit_code": _exit_code(chosen, account, report),
    }
    if chosen.command is CommandName.REPLAY:
        return Replayed(**facts, replayed=changed)
    return Discarded(**facts, discarded=changed)


def _exit_code(chosen: ChosenErrors, account: Account, report: CommandReport | None) -> ExitCode:
    """Whether all was done that was asked."""
    if report is not None and report.ledger_error:
        return ExitCode.WORK_LEFT
    was_overtaken = chosen.is_exact and account.done_before
    was_stopped = report is not None and report.is_stopped
    if not chosen.is_whole or account.failed or was_overtaken or was_stopped:
        return ExitCode.MESSAGES_FAILED
    return ExitCode.DONE
