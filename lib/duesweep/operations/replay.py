"""Replays messages that exhausted their attempts, and discards them: the work of two commands.

Each reads what became of errors only when it runs alone and the ledger has all that earlier
commands did (see `change`). So of two replays, the second one finds what the first one did. There
are two ways to replay a batch: deliver it to queues, or put it back into the store.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from duesweep.api.ledgers import command_ledger
from duesweep.core.change import Change, ChangeKind, Command
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
from duesweep.core.policy import Paused, RateLimit, RateLimits
from duesweep.core.times import Moment
from duesweep.core.world import StoreClock
from duesweep.drivers.statements import retry_lost_transactions, try_again
from duesweep.exhausted import ExhaustedMessages, Fate
from duesweep.operations.change import CommandReport, Tally, put_back, require_reason, run_command
from duesweep.queues.base import QueueSession
from duesweep.stores.base import Claim, NewMessage, OperatorTask, SweepRun
from duesweep.sweep.delivery import SliceDelivery, group_by_destination
from duesweep.sweep.job import SweepContext
from duesweep.sweep.waiting import DestinationBreakers, SliceLimits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOST = "The ledger does not have it any more"
# So often a message that gets no answer is sent, and so often in a row none may be reached.
_MOST_TRIES = 3
_NO_ANSWER = "The queue did not say whether the message arrived: it may have"
_NOT_SENT = "It was not sent: the messages before it took too long"
_PAUSED = "Its destination is paused: see `duesweep paused`"
_MOST_FAILURES = 1_000


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

    error: ErrorId
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
            self.failures.append(Failure(error, reason))


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


@dataclass(frozen=True, slots=True)
class ErrorsReport:
    """What became of the errors that were chosen. `done` None: there was nothing to do.
    `done_before` were replayed or discarded before; `failures` are the first of the `failed`.
    """

    chosen: int
    done_before: int
    done: CommandReport | None = None
    failed: int = 0
    failures: Sequence[Failure] = ()


def replay_errors(
    context: SweepContext,
    wanted: ErrorFilter,
    target: Target,
    command: Command,
    *,
    spark: "SparkSession | None" = None,
) -> ErrorsReport:
    """Replay the errors that a filter means, except those that were replayed or discarded."""
    with command_ledger(context, spark) as ledger:
        messages = ExhaustedMessages(ledger, context.store.source)
        messages.check()
        found = find_errors(messages, wanted)
        if not found.rows:
            return ErrorsReport(0, len(found.done_rows))
        require_reason(command.reason, len(found.rows))
        if target.due is None:
            context.queue.check(None)
        work = Replay(context, context.own_name, Choice(messages, found.rows), target)
        done = run_command(context, ledger, command, work)
    account = work.account
    before = len(found.done_rows) + account.done_before
    return ErrorsReport(len(found.rows), before, done, account.failed, tuple(account.failures))
