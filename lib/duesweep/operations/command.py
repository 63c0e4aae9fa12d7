"""An operator's command from start to end: refuse an unclear choice, settle old work, change
messages, settle. The commands are in `change`, `restore` and `replay`.

The changes to messages are its `CommandWork`: it gets ledger, session and the open command, and
does one batch after another, each in a transaction of its own. A command that dies is closed and
settled by the next sweep or command, as a sweep is: its committed batches are in the journal.
"""

import getpass
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from math import inf
from random import Random
from typing import NamedTuple
from uuid import UUID

from duesweep.core import logs
from duesweep.core.change import Command, CommandName
from duesweep.core.errors import (
    ConfigError,
    DuesweepError,
    ExitCode,
    LedgerError,
    StoreError,
    SweepClosedError,
    shorten,
)
from duesweep.core.result import Result
from duesweep.core.routing import UnknownDestination
from duesweep.core.world import Clock, Patience
from duesweep.ledger.ledger import Ledger
from duesweep.operations.endpoint import Endpoint, Stop
from duesweep.operations.opening import command_ledger
from duesweep.stores.base import DriverSession, OperatorDriver, operators_of
from duesweep.stores.journal import Journal
from duesweep.stores.people import OperatorTask
from duesweep.stores.sweeps import SweepRun
from duesweep.sweep.job import SweepContext
from duesweep.sweep.queues_check import find_missing_queues
from duesweep.sweep.settle import BRIEFLY_SECONDS, living_session, settle_first, settle_one

# Another settler has its lease for about as long as it takes to settle a sweep.
_LOCK_SECONDS = 5.0
# Of two commands that have seen each other, each waits a number of times by chance, up to this.
_MOST_WAITS = 8
_MOST_FAILURES = 1_000
_STILL_UNDOES = "Command {}, which restores, replays or discards messages of {}, has not ended yet"


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


# Yields after each batch that it has committed.
CommandWork = Callable[[Ledger, OperatorTask, SweepRun], Iterator[Tally]]


@dataclass(frozen=True, kw_only=True)
class Chosen(Result, ABC):
    """The messages or errors of a source that `command` is to change, for these destinations.
    `gone`: the number of wanted ones that are not there, or were done before.
    `unknown_destination`: the filter's, if none was ever for it.
    """

    command: CommandName
    source: str
    would_change: int
    gone: int
    destinations: Mapping[str, int] = field(default_factory=dict)
    unknown_destination: UnknownDestination | None = None

    @property
    def lacking(self) -> int:
        """How many of the wanted ones cannot be changed."""
        return self.gone

    @property
    @abstractmethod
    def is_exact(self) -> bool:
        """Whether each was named."""

    def is_done(self, changed: int, gone: int) -> bool:  # noqa: ARG002 - some do without `gone`
        """Whether all is done that was asked, if these numbers were changed, and gone."""
        return changed >= self.would_change + self.lacking


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed(Result):
    """The changes by a command to messages or errors, as `Tally`. `command_id` None: it found none
    to change. `unknown_destination`: the filter's, if none was for it. `left`: the number that it
    did not look at, because it was stopped between two batches. `ledger_error`: why the ledger has
    not got it yet; the journal keeps it until the next sweep or command.
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
    unknown_destination: UnknownDestination | None = None
    exit_code: ExitCode
    error: str | None = None
    left: int = field(default=0, repr=False)
    failures: Sequence[Failure] = ()

    @classmethod
    def of(
        cls,
        chosen: Chosen,
        done: Tally,
        command_id: str | None = None,
        *,
        ledger_error: str | None = None,
        is_stopped: bool = False,
    ) -> "Changed":
        """The outcome of the choice."""
        tally = done + Tally(gone=chosen.lacking)
        is_done = chosen.is_done(done.changed, done.gone)
        code = ExitCode.DONE if is_done else ExitCode.MESSAGES_FAILED
        asked = chosen.would_change + chosen.lacking
        left = asked - tally.changed - tally.held - tally.gone - tally.refused
        return cls(
            command=chosen.command,
            command_id=command_id,
            source=chosen.source,
            **asdict(tally),
            # A stop that came after the last batch stopped nothing.
            is_stopped=is_stopped and left > 0,
            ledger_error=ledger_error,
            exit_code=code if ledger_error is None else ExitCode.WORK_LEFT,
            error=ledger_error,
            unknown_destination=chosen.unknown_destination,
            left=left,
        )


def refuse_unknown(
    context: SweepContext, unknown: UnknownDestination | None, what: str, advice: str
) -> None:
    """Raise `ConfigError` for a name that neither `what` was chosen from nor a queue has: a typing
    error. A queue for which nothing is there (any more), and a pattern, may be meant.
    """
    if unknown is None:
        return
    name = unknown.pattern
    if "*" not in name and find_missing_queues(context, [name]):
        raise ConfigError(
            f"No {what} is for the destination {shorten(name)!r}, and it has no queue",
            advice=unknown.similar_text or advice,
        )


def act(
    endpoint: Endpoint,
    chosen: Chosen,
    command: CommandName,
    work: CommandWork,
    *,
    reason: str | None,
    stop: Stop | None,
) -> Changed:
    """Carry the choice out, and settle it into the ledger. If it is empty, nothing is written
    anywhere. `work` goes through it in batches, each a transaction of `stores/sql_changes.py`.

    A command that `undoes` runs alone, and only if the ledger has all that earlier ones did: so
    `work` can rely on its reads there. Raises `ConfigError` if it was chosen for another command or
    endpoint, and the `DuesweepError`s of its parts; in every case the journal has all changes.
    """
    _refuse_others(endpoint, chosen, command)
    if not chosen.would_change:
        return Changed.of(chosen, Tally())
    require_reason(reason, chosen.would_change)
    logs.step(f"{command.done}: 0")
    context, stop = endpoint.context, stop or Stop()
    operators = operators_of(context.store, f"the command `{command}`")
    with command_ledger(context, endpoint.spark) as ledger, operators.open_driver() as session:
        session.check()
        seconds = inf if command.undoes else BRIEFLY_SECONDS
        clock = context.world.clock
        patience = Patience(_LOCK_SECONDS, lambda: stop.is_wanted, clock)
        earlier = settle_first(session, ledger, patience, seconds)
        if command.undoes and earlier is not None:
            raise earlier
        opened = Command(command, given_by(), reason)
        run = _open(session, opened, patience, context.world.chance())
        command_id, done = str(run.sweep_id), Tally()
        try:
            with operators.open_changes() as changing:
                batches = work(ledger, changing, run)
                while not stop.is_wanted and (batch := next(batches, None)) is not None:
                    done += batch
                    logs.step(f"{command.done}: {done.changed:,}")
                is_stopped = stop.is_wanted
            with living_session(context, session, run, stop=stop) as living:
                lost = _end(living, ledger, run, context.world.clock)
        except DuesweepError as error:
            # A batch that was lost may be done as well.
            least = f"changed {done.changed:,} or more messages"
            had = least if done.changed else "no change confirmed"
            told = f"{error.text}. By then command {command_id} had {had}"
            error.args = (told, *error.args[1:])
            raise
    return Changed.of(chosen, done, command_id, ledger_error=lost, is_stopped=is_stopped)


def _refuse_others(endpoint: Endpoint, chosen: Chosen, command: CommandName) -> None:
    if chosen.command is not command:
        raise ConfigError(
            f"These were chosen for `{chosen.command}`, not for `{command}`",
            advice=f"choose them for `{command}`",
        )
    if chosen.source != endpoint.source:
        raise ConfigError(
            f"These were chosen in {chosen.source}, not in {endpoint.source}",
            advice="choose and act with the same endpoint",
        )


def refuse_unclear(command: CommandName, *, is_empty: bool, everything: bool) -> None:
    """Raise `ConfigError` unless either conditions or `everything` say what to change."""
    if is_empty and not everything:
        raise ConfigError(
            f"`{command}`: no {command.noun}s are selected",
            advice="give keys or a filter, or --all (everything=True in Python) for all",
        )
    if everything and not is_empty:
        raise ConfigError(
            f"`{command}`: all {command.noun}s are selected, and also some by keys or a filter",
            advice="leave one of them out",
        )


def settle_earlier(context: SweepContext, ledger: Ledger) -> None:
    """Settle what dead commands and sweeps left, for who reads the ledger to choose. Raises
    `LedgerError` where the ledger cannot be written.
    """
    with context.store.open_driver() as session:
        session.check()
        patience = Patience(_LOCK_SECONDS, clock=context.world.clock)
        error = settle_first(session, ledger, patience, inf)
    if error is not None:
        raise error


def _open(
    session: OperatorDriver, command: Command, patience: Patience, chance: Random
) -> SweepRun:
    """Open the command. One that undoes waits until no other one is open. It looks when its own
    is: of two that begin at once, even if one was frozen, one sees the other. If both do, both
    close theirs, and the first one to open it again continues.
    """
    while True:
        run = session.sweeps.open(session.due.horizon(), command=command)
        other = _other_undoing(session.journal, run) if command.name.undoes else None
        if other is None:
            return run
        if session.sweeps.close(run.sweep_id, abandoned=False, remaining=0):
            session.journal.delete_settled(run.sweep_id, is_in_ledger=False)
        told = partial(_STILL_UNDOES.format, other, session.source)
        waits = chance.randint(1, _MOST_WAITS)
        while waits > 0 or other is not None:
            if not patience.wait(told):
                raise StoreError(
                    f"{told()}, and this command has changed nothing",
                    advice="try again when that one has ended",
                    transient=True,
                )
            waits -= 1
            other = _other_undoing(session.journal, run)


def _other_undoing(journal: Journal, run: SweepRun) -> UUID | None:
    for each in journal.unsettled():
        if each.command and each.command.undoes and each.sweep_id != run.sweep_id:
            return each.sweep_id
    return None


def _end(session: DriverSession, ledger: Ledger, run: SweepRun, clock: Clock) -> str | None:
    """Close and settle the command. Returns why the ledger has not got it, if so."""
    if not session.sweeps.close(run.sweep_id, abandoned=False, remaining=0):
        raise SweepClosedError(
            f"Another process closed command {run.sweep_id} of {session.source}, because it took "
            "this one for dead. The command's earlier changes stay, and are in the ledger",
            advice="run the command again for the rest",
        )
    try:
        settle_one(session, ledger, run.sweep_id, Patience(_LOCK_SECONDS, clock=clock))
    except (LedgerError, ConfigError) as error:
        return str(error)
    return None
