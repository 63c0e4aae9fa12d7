"""An operator's command from start to end: settle old work, change messages, settle; and the
changes by `cancel` and `reschedule`.

The changes to messages are its `Work`: it gets a session and the open command, and does
one batch after another, each in a transaction of its own. A command that dies is closed and settled
by the next sweep or command, as a sweep is: its committed batches are in the journal.
"""

import getpass
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from duesweep.core.change import Command, CommandName, DueSpan
from duesweep.core.errors import (
    ConfigError,
    DuesweepError,
    ExitCode,
    LedgerError,
    StoreError,
    SweepClosedError,
)
from duesweep.core.message import Message
from duesweep.core.policy import BatchLimits
from duesweep.core.result import Result
from duesweep.core.routing import UnknownDestination
from duesweep.core.times import Moment
from duesweep.core.world import Patience, exact_instant, micros
from duesweep.drivers.statements import retry_lost_transactions
from duesweep.ledger.ledger import Ledger
from duesweep.operations.messages import AnyChosen, Chosen, Tell, tell_nobody
from duesweep.operations.opening import command_ledger
from duesweep.stores.base import (
    Claim,
    DriverSession,
    OperatorDriver,
    OperatorTask,
    SweepRun,
    operators_of,
)
from duesweep.sweep.job import SweepContext
from duesweep.sweep.settle import BRIEFLY_SECONDS, living_session, settle_first, settle_one
from duesweep.sweep.stop import Stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Another settler holds its locks for about as long as it takes to settle a sweep.
_LOCK_SECONDS = 5.0
# The rest of a message's row, without its body.
_USUAL_BYTES = 2_000
_MOST_FAILURES = 1_000


def given_by() -> str:
    """The user of the operating system, and the machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a number that has no name.
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def require_reason(reason: str | None, messages: int) -> None:
    """Raise `ConfigError` for a command on several messages without a reason."""
    if messages > 1 and not (reason and reason.strip()):
        raise ConfigError(
            f"No reason is given for changing {messages:,} messages",
            advice="add --reason TEXT; the ledger keeps it",
        )


class Failure(NamedTuple):
    """A message that was not changed, with the reason. `sweep_id`: the sweep or command that had
    removed it from the store.
    """

    key: str
    sweep_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Tally:
    """The outcomes of the messages of a batch, or of all. `held` were locked by others, `gone` were
    not there any more, or done before, and `refused` could not be changed as the command asked;
    `failures` are the first of these, if they have more to say.
    """

    changed: int = 0
    held: int = 0
    gone: int = 0
    refused: int = 0
    failures: tuple[Failure, ...] = field(default=(), compare=False)

    @classmethod
    def refusing(cls, failures: Sequence[Failure]) -> "Tally":
        """The tally of messages that were all refused."""
        return cls(refused=len(failures), failures=tuple(failures))

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.changed + other.changed,
            self.held + other.held,
            self.gone + other.gone,
            self.refused + other.refused,
            (self.failures + other.failures)[:_MOST_FAILURES],
        )


# Changes messages that are held, in the transaction that holds them. Returns how many it changed.
_Change = Callable[[OperatorTask, SweepRun, Claim, Sequence[Message]], int]
# Yields after each batch that it has committed.
Work = Callable[[OperatorTask, SweepRun], Iterator[Tally]]


@dataclass(slots=True)
class CommandReport:
    """The state of a command. `ledger_error`: why the ledger has not got it yet; the
    journal keeps it until the next sweep or command. `is_stopped`: it was stopped between two
    batches.
    """

    command_id: str | None = None
    tally: Tally = Tally()
    ledger_error: str | None = None
    is_stopped: bool = False

    def carry_out(self, batches: Iterator[Tally], stop: Stop, tell: Tell) -> None:
        """Do all batches, or those before a stop."""
        while not stop.is_wanted:
            batch = next(batches, None)
            if batch is None:
                return
            self.tally += batch
            tell(self.tally.changed)
        self.is_stopped = True

    @contextmanager
    def told_with_errors(self) -> Iterator[None]:
        """Add to each error the changes before it. A batch that was lost may be done as well."""
        try:
            yield
        except DuesweepError as error:
            changed = self.tally.changed
            done = f"changed {changed:,} or more messages" if changed else "no change confirmed"
            told = f"{error.text}. By then command {self.command_id} had {done}"
            error.args = (told, *error.args[1:])
            raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed(Result):
    """The changes by a command to messages or errors, as `Tally`. `command_id` None: it found none
    to change. `left`: the number that it did not look at, because it was stopped. `error` is the
    ledger's.
    """

    command: CommandName
    command_id: str | None = None
    source: str
    changed: int = 0
    held: int = 0
    gone: int = 0
    refused: int = 0
    is_stopped: bool = False
    ledger_error: str | None = None
    exit_code: ExitCode
    error: str | None = None
    left: int = field(default=0, repr=False)
    failures: Sequence[Failure] = ()

    @classmethod
    def of(cls, chosen: AnyChosen, report: CommandReport, **more: Any) -> Self:
        """The outcome of the choice."""
        tally = report.tally + Tally(gone=chosen.lacking)
        is_done = chosen.is_done(report.tally.changed, report.tally.gone)
        code = ExitCode.DONE if is_done else ExitCode.MESSAGES_FAILED
        asked = chosen.would_change + chosen.lacking
        left = asked - tally.changed - tally.held - tally.gone - tally.refused
        return cls(
            command=chosen.command,
            command_id=report.command_id,
            source=chosen.source,
            **asdict(tally),
            # One that came after the last batch stopped nothing.
            is_stopped=report.is_stopped and left > 0,
            ledger_error=report.ledger_error,
            exit_code=code if report.ledger_error is None else ExitCode.WORK_LEFT,
            error=report.ledger_error,
            left=left,
            **more,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchanged(Changed):
    """An empty choice. `unknown_destination`: the filter's, if no message is for it."""

    unknown_destination: UnknownDestination | None = None


def run_command(
    context: SweepContext,
    ledger: Ledger,
    command: Command,
    work: Work,
    *,
    stop: Stop | None = None,
    tell: Tell = tell_nobody,
) -> CommandReport:
    """Carry a command out, and settle it into the context's ledger. `tell` gets after each batch
    how many messages are changed by now.

    A command that `undoes` runs alone, and only if the ledger has all that earlier ones did: so
    `work` can rely on its reads there. Raises the `DuesweepError`s of its parts; in every case
    the journal has all changes.
    """
    stop = stop or Stop()
    operators = operators_of(context.store, f"the command `{command.name}`")
    with operators.open_driver() as session:
        session.check()
        with session.undoing() if command.name.undoes else nullcontext():
            seconds = inf if command.name.undoes else BRIEFLY_SECONDS
            patience = Patience(_LOCK_SECONDS, lambda: stop.is_wanted)
            earlier = settle_first(session, ledger, patience, seconds)
            if command.name.undoes:
                _refuse_unsettled(session, earlier)
            run = session.open_command(command)
            report = CommandReport(str(run.sweep_id))
            with report.told_with_errors():
                with operators.open_changes() as changing:
                    report.carry_out(work(changing, run), stop, tell)
                with living_session(context, session, run, stop=stop) as living:
                    report.ledger_error = _end(living, ledger, run)
    return report


def settle_earlier(context: SweepContext, ledger: Ledger) -> None:
    """Settle what dead commands and sweeps left, for who reads the ledger to choose. Raises
    `LedgerError` where the ledger cannot be written.
    """
    with context.store.open_driver() as session:
        session.check()
        error = settle_first(session, ledger, Patience(_LOCK_SECONDS), inf)
    if error is not None:
        raise error


def _refuse_unsettled(commands: OperatorDriver, earlier: LedgerError | None) -> None:
    if earlier is not None:
        raise earlier
    others = [each for each in commands.unsettled() if each.command and each.command.undoes]
    if others:
        raise StoreError(
            f"Command {others[0].sweep_id}, which restores, replays or discards messages of "
            f"{commands.source}, has not ended yet, and this one has done nothing",
            advice="try again when that one has ended",
            transient=True,
        )


def _end(session: DriverSession, ledger: Ledger, run: SweepRun) -> str | None:
    """Close and settle the command. Returns why the ledger has not got it, if so."""
    if not session.close_sweep(run.sweep_id, abandoned=False, remaining=0):
        raise SweepClosedError(
            f"Another process closed command {run.sweep_id} of {session.source}, because it took "
            "this one for dead. The command's earlier changes stay, and are in the ledger",
            advice="run the command again for the rest",
        )
    try:
        settle_one(session, ledger, run.sweep_id, Patience(_LOCK_SECONDS))
    except (LedgerError, ConfigError) as error:
        return str(error)
    return None


def act(
    context: SweepContext,
    chosen: AnyChosen,
    work: Callable[[Ledger], Work],
    reason: str | None,
    *,
    spark: "SparkSession | None" = None,
    stop: Stop | None = None,
    tell: Tell = tell_nobody,
) -> Changed:
    """Carry out the choice. If it is empty, nothing is written anywhere."""
    if not chosen.would_change:
        unknown = chosen.unknown_destination if isinstance(chosen, Chosen) else None
        return Unchanged.of(chosen, CommandReport(), unknown_destination=unknown)
    require_reason(reason, chosen.would_change)
    command = Command(chosen.command, given_by(), reason)
    with command_ledger(context, spark) as ledger:
        report = run_command(context, ledger, command, work(ledger), stop=stop, tell=tell)
    return Changed.of(chosen, report)


def cancel_chosen(chosen: Chosen, limits: BatchLimits) -> Work:
    """The work of `cancel`."""

    def cancel(
        session: OperatorTask, run: SweepRun, claim: Claim, messages: Sequence[Message]
    ) -> int:
        session.cancel(run, messages, claim.server_us)
        return len(messages)

    return _in_batches(chosen, limits, cancel)


def reschedule_chosen(
    chosen: Chosen, limits: BatchLimits, to: Moment | None, by: timedelta | None
) -> Work:
    """The work of `reschedule`: each gets a Due `to` a moment, or its old one moved `by` a time."""

    def due_of(message: Message, now: datetime) -> datetime | None:
        """None: it has none that could be moved, or one outside of Python's years."""
        if to is not None:
            return to.at(now)
        if by is None or message.instant_us is None:
            return None
        return exact_instant(message.instant_us + by // timedelta(microseconds=1))

    def reschedule(
        session: OperatorTask, run: SweepRun, claim: Claim, messages: Sequence[Message]
    ) -> int:
        now = run.horizon.server_time
        dues = [(message, due_of(message, now)) for message in messages]
        known = [(message, new) for message, new in dues if new is not None]
        session.reschedule(run, known, claim.server_us)
        return len(known)

    return _in_batches(chosen, limits, reschedule)


def _in_batches(chosen: Chosen, limits: BatchLimits, change: _Change) -> Work:
    def work(session: OperatorTask, run: SweepRun) -> Iterator[Tally]:
        @retry_lost_transactions
        def do(lock_keys: Sequence[str]) -> Tally:
            with session.transaction():
                claim = session.hold(run, lock_keys)
                meant = [one for one in claim.messages if _is_in(chosen.wanted.due, one)]
                changed = change(session, run, claim, meant)
            return Tally(
                changed=changed,
                held=claim.skipped,
                gone=claim.gone + len(claim.messages) - len(meant),
                refused=len(meant) - changed,
            )

        sizes = [size + _USUAL_BYTES for size in chosen.sizes]
        for batch in limits.batches(chosen.lock_keys, sizes):
            yield do(batch)

    return work


def _is_in(span: DueSpan, message: Message) -> bool:
    if message.instant_us is None:
        return span.end is None
    # Compared as numbers: a Due may be beyond Python's times.
    starts = span.start is None or message.instant_us >= micros(span.start)
    return starts and (span.end is None or message.instant_us < micros(span.end))
