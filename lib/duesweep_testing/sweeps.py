"""Sweeps and commands that a test opens and closes by driver's sessions of its own, as other
processes do. A sweep whose session has ended counts as dead, but it is open.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from duesweep.core.change import Command, CommandName
from duesweep.core.message import Address
from duesweep.core.policy import BatchSize, LedgerWriter, Retry
from duesweep.core.world import Clock, World
from duesweep.queues.base import Queue
from duesweep.stores.base import Store, operators_of
from duesweep.stores.people import OperatorTask
from duesweep.stores.sweeps import SweepRun
from duesweep.stores.task import Forwarded, Moved, Table, TaskSession
from duesweep_testing.memory_ledger import MemoryContext, MemoryTables

COMMAND = Command(CommandName.CANCEL, "someone@somewhere", "a test")


def context_of(
    store: Store, queue: Queue, clock: Clock | None = None, **settings: Any
) -> MemoryContext:
    """The context of a sweep of a store, with a ledger in memory; `settings` are fields of it."""
    values: dict[str, Any] = {
        "ledger_root": MemoryTables.root,
        "ledger_writer": LedgerWriter.AUTO,
        "batch_size": BatchSize(),
        "retry": Retry(),
        "world": World(clock or Clock()),
    }
    return MemoryContext(store=store, queue=queue, **values | settings)


def open_sweep(store: Store) -> SweepRun:
    """Open a sweep of the messages due now."""
    with store.open_driver() as driver:
        return driver.sweeps.open(driver.due.horizon())


def open_command(store: Store, command: Command = COMMAND) -> SweepRun:
    """Open an operator's command."""
    with operators_of(store, "a command").open_driver() as driver:
        return driver.sweeps.open(driver.due.horizon(), command=command)


def close_sweep(store: Store, run: SweepRun) -> None:
    """Close a sweep or command, as a process does that takes its driver for dead."""
    with store.open_driver() as driver:
        driver.sweeps.close(run.sweep_id, abandoned=True, remaining=0)


def stop_sweep(store: Store, run: SweepRun, after_seconds: float) -> None:
    """Let a sweep stop after `after_seconds`."""
    with store.open_driver() as driver:
        driver.sweeps.stop(run.sweep_id, after_seconds)


def move_into(
    session: TaskSession,
    run: SweepRun,
    groups: Sequence[Forwarded],
    table_of: Callable[[Address], Table],
) -> Moved:
    """Move messages into the tables that their addresses mean, within a transaction."""
    with session.select(run, groups) as selection:
        tables = {address: table_of(address) for address in selection.addresses}
        return session.move(run, selection, tables)


class _RollbackError(Exception):
    """Rolls a transaction back."""


@contextmanager
def roll_back(session: TaskSession | OperatorTask) -> Iterator[None]:
    """A transaction (nested: a savepoint) that is rolled back at the end of the block."""
    with suppress(_RollbackError), session.transaction():
        yield
        raise _RollbackError
