"""An operator's command from start to end: settle what was left, change messages, settle.

What the command does to messages is its `Work`: it gets a session and the open command, and does
one batch after another, each in a transaction of its own. A command that dies is closed and settled
by the next sweep or command, as a sweep is: what its batches committed is in the journal.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from math import inf
from uuid import UUID

from duesweep.core.change import Command
from duesweep.core.errors import (
    ConfigError,
    DuesweepError,
    LedgerError,
    StoreError,
    SweepClosedError,
)
from duesweep.core.world import Patience
from duesweep.ledger.ledger import Ledger
from duesweep.stores.base import DriverSession, OperatorDriver, OperatorTask, SweepRun, operators_of
from duesweep.sweep.job import SweepContext
from duesweep.sweep.settle import BRIEFLY_SECONDS, living_session, settle_command, settle_first
from duesweep.sweep.stop import Stop

# Another settler holds its locks for about as long as it takes to settle a sweep.
_LOCK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of the messages of a batch, or of all. `held` were locked by others, `gone` were
    not there any more, and `refused` could not be changed as the command asked.
    """

    changed: int = 0
    held: int = 0
    gone: int = 0
    refused: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.changed + other.changed,
            self.held + other.held,
            self.gone + other.gone,
            self.refused + other.refused,
        )


# Yields after each batch that it has committed.
Work = Callable[[OperatorTask, SweepRun], Iterator[Tally]]


@dataclass(frozen=True, slots=True)
class CommandReport:
    """What a command did. `ledger_error`: why the ledger has not got it yet; the journal keeps it
    until the next sweep or command. `is_stopped`: it was stopped between two batches.
    """

    command_id: str
    source: str
    tally: Tally
    ledger_error: str | None = None
    is_stopped: bool = False

    def with_gone(self, messages: int) -> "CommandReport":
        """The same, with so many more messages that were gone before it began."""
        return replace(self, tally=self.tally + Tally(gone=messages))


def run_command(
    context: SweepContext, ledger: Ledger, command: Command, work: Work, *, stop: Stop | None = None
) -> CommandReport:
    """Carry a command out, and settle it into the context's ledger.

    A command that `undoes` runs alone, and only if the ledger has all that earlier ones did: so
    `work` can rely on what it reads there. Raises the `DuesweepError`s of its parts; in every case
    the journal has what was done.
    """
    source, stop = context.store.source, stop or Stop()
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
            done = _Done(run.sweep_id)
            with done.told_with_errors():
                with operators.open_changes() as changing:
                    done.carry_out(work(changing, run), stop)
                with living_session(context, session, run, stop=stop) as living:
                    ledger_error = _end(living, ledger, run)
    return CommandReport(str(run.sweep_id), source, done.tally, ledger_error, done.is_stopped)


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


@dataclass(slots=True)
class _Done:
    """What a command has done so far."""

    command_id: UUID
    tally: Tally = Tally()
    is_stopped: bool = False

    def carry_out(self, batches: Iterator[Tally], stop: Stop) -> None:
        """Do all batches, or those before a stop."""
        while not stop.is_wanted:
            batch = next(batches, None)
            if batch is None:
                return
            self.tally += batch
        self.is_stopped = True

    @contextmanager
    def told_with_errors(self) -> Iterator[None]:
        """Say in each error what was done before it. A batch that was lost may be done besides."""
        try:
            yield
        except DuesweepError as error:
            changed = self.tally.changed
            done = f"changed {changed:,} or more messages" if changed else "no change confirmed"
            told = f"{error.text}. By then command {self.command_id} had {done}"
            error.args = (told, *error.args[1:])
            raise


def _end(session: DriverSession, ledger: Ledger, run: SweepRun) -> str | None:
    """Close and settle the command. Returns why the ledger has not got it, if so."""
    if not session.close_sweep(run.sweep_id, abandoned=False, remaining=0):
        raise SweepClosedError(
            f"Another process closed command {run.sweep_id} of {session.source}, because it took "
            "this one for dead. What the command did before is done, and in the ledger",
            advice="run the command again for the rest",
        )
    try:
        settle_command(session, ledger, run.sweep_id, Patience(_LOCK_SECONDS))
    except (LedgerError, ConfigError) as error:
        return str(error)
    return None
