"""The store, queues and ledger in memory, whose calls are steps at which faults happen.

A lost connection is rolled back at once, and each further call on it fails. An error after COMMIT
means that its answer was lost.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any
from uuid import UUID

from duesweep.core.account import SliceEnd
from duesweep.core.errors import (
    DestinationError,
    LedgerError,
    MessageError,
    StoreError,
    TransactionLostError,
)
from duesweep.core.message import Address, Message, Outcome
from duesweep.core.policy import RateLimit
from duesweep.ledger.base import LedgerPiece
from duesweep.queues.base import Destination
from duesweep.stores.sweeps import SweepRun
from duesweep.stores.task import (
    NOBODY,
    Claim,
    Forwarded,
    LeftAlone,
    Moved,
    Selection,
    Table,
    TaskSession,
)
from duesweep_testing.memory_driver import MemoryDriverSession
from duesweep_testing.memory_ledger import MemoryTables
from duesweep_testing.memory_queue import MemoryQueue, MemoryQueueSession
from duesweep_testing.memory_sessions import MemoryChangeSession, MemoryTaskSession
from support.contract.memory_stores import DueKeySession, MovingSession, MovingStore
from support.simulation.faults import LEASE_SECONDS, Fault, Faults
from support.simulation.promises import BrokenPromiseError, Promises
from support.simulation.scheduler import Connection, Scheduler


def _lost(text: str) -> StoreError:
    return StoreError(text, transient=True)


class Steps(Connection):
    """The steps of one connection."""

    def __init__(self, scheduler: Scheduler, faults: Faults, lose: Callable[[], None]) -> None:
        super().__init__(scheduler.current.process)
        self._scheduler, self._faults, self._lose = scheduler, faults, lose

    def lose(self) -> None:
        if not self.is_lost:
            super().lose()
            self._lose()

    def step(
        self,
        what: str,
        error: Callable[[str], Exception] = _lost,
        kinds: tuple[Fault, ...] = tuple(Fault),
    ) -> None:
        """Let others continue, and a fault happen. Raises on a lost connection."""
        self._scheduler.step(what)
        if not self.is_lost:
            self._faults.strike(what, self, error, kinds=kinds)
        if self.is_lost:
            raise _lost(f"The connection was lost before {what}")


class SimulatedTask(MemoryTaskSession):
    """A task's session, which finds messages by their keys. `claimed_at`: when it claimed last."""

    def __init__(self, store: "SimulatedStore") -> None:
        super().__init__(store)
        self._simulated = store
        self.steps = Steps(store.scheduler, store.faults, self._roll_back)
        self.claimed_at = store.now
        self._run: SweepRun | None = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self._depth:
            with super().transaction():
                yield
            return
        self.steps.step("BEGIN")
        self._run, self.steps.is_in_transaction = None, True
        try:
            with super().transaction():
                yield
                self.steps.step("COMMIT", TransactionLostError)
        finally:
            self.steps.is_in_transaction = False
        self.steps.step("the answer to COMMIT", kinds=(Fault.LOST, Fault.KILLED, Fault.FROZEN))

    def enlist(self, change: Callable[[], object]) -> None:
        if self.steps.is_lost:
            raise _lost("The connection was lost")
        super().enlist(change)

    def claim(
        self, run: SweepRun, claim_keys: Sequence[str], left_alone: LeftAlone = NOBODY
    ) -> Claim:
        self.steps.step("claim")
        self._run, self.claimed_at = run, self._simulated.now
        claim = super().claim(run, claim_keys, left_alone)
        self._simulated.promises.check_claim(self, claim)
        self.steps.step("the claimed messages", TransactionLostError)
        return claim

    @contextmanager
    def select(
        self, run: SweepRun, groups: Sequence[Forwarded], left_alone: LeftAlone = NOBODY
    ) -> Iterator[Selection]:
        self.steps.step("select")
        self._run, self.claimed_at = run, self._simulated.now
        with super().select(run, groups, left_alone) as selection:
            yield selection

    def move(self, run: SweepRun, selection: Selection, tables: Mapping[Address, Table]) -> Moved:
        self.steps.step("move", TransactionLostError)
        return super().move(run, selection, tables)

    def grant_exhausted(self, run: SweepRun, wanted: int, limit: int) -> int:
        self.steps.step("grant exhausted messages")
        return super().grant_exhausted(run, wanted, limit)

    def reserve(self, limit: RateLimit, messages: int) -> float:
        self.steps.step("reserve")
        return super().reserve(limit, messages)

    def finish(
        self, run: SweepRun, slice_number: int, outcomes: Sequence[Outcome], server_us: int
    ) -> None:
        self.steps.step("finish", TransactionLostError)
        super().finish(run, slice_number, outcomes, server_us)

    def end_slice(self, run: SweepRun, slice_number: int, end: SliceEnd) -> None:
        self._run = run
        super().end_slice(run, slice_number, end)

    def _end(self) -> None:
        if self._changes and self._run is not None:
            self._simulated.promises.check_commit(self._run)
        super()._end()

    def _roll_back(self) -> None:
        self._changes.clear()
        self._end()


class SimulatedMover(SimulatedTask, MovingSession):
    """A session that moves messages into their queues itself."""


class SimulatedByDue(SimulatedTask, DueKeySession):
    """A session that finds messages by their Due, as on SQL Server."""


class Kind(StrEnum):
    """How a task's session claims."""

    BY_KEY = "by key"
    BY_DUE = "by Due"
    MOVING = "moving"


_SESSIONS = {
    Kind.BY_KEY: SimulatedTask,
    Kind.BY_DUE: SimulatedByDue,
    Kind.MOVING: SimulatedMover,
}


class SimulatedChanges(SimulatedTask, MemoryChangeSession):
    """An operator's session."""

    def hold(self, run: SweepRun, lock_keys: Sequence[str]) -> Claim:
        self.steps.step("hold")
        self._run = run
        return super().hold(run, lock_keys)


class Stepped:
    """A part of a driver's session: each call is a step before and a step after it."""

    def __init__(self, part: Any, steps: Steps) -> None:
        self._part, self._steps = part, steps

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._part, name)
        if not callable(value):
            return value
        if name == "settling":
            return self._locking(name, value)

        def call(*arguments: Any, **options: Any) -> Any:
            self._steps.step(name)
            found = value(*arguments, **options)
            self._steps.step(f"the answer to {name}")
            return found

        return call

    def _locking(self, name: str, lock: Callable[[], Any]) -> Callable[[], Any]:
        @contextmanager
        def held() -> Iterator[Any]:
            self._steps.step(name)
            with lock() as found:
                yield found

        return held


class SimulatedDriver(MemoryDriverSession):
    """A driver's session."""

    def __init__(self, store: "SimulatedStore") -> None:
        super().__init__(store)
        self.steps = Steps(store.scheduler, store.faults, lambda: None)
        self.steps.process.leases.append(self.end_leases)
        self._close = self.sweeps.close
        setattr(self.sweeps, "close", self._close_checked)  # noqa: B010 - a method
        parts: Any = self
        for name in ("journal", "due", "sweeps", "binding", "people"):
            setattr(parts, name, Stepped(getattr(self, name), self.steps))

    def check(self) -> None:
        self.steps.step("check")

    def _close_checked(self, sweep_id: UUID, *, abandoned: bool, **more: Any) -> bool:
        sweep = self._store.sweeps.get(sweep_id)
        lives = abandoned and sweep is not None and sweep.owner not in {None, self}
        is_closed = self._close(sweep_id, abandoned=abandoned, **more)
        if is_closed and lives:
            raise BrokenPromiseError(f"sweep {sweep_id} was closed while its driver lived")
        return is_closed

    def __exit__(self, *error: object) -> None:
        if self.steps.is_lost:
            # They cannot be given back.
            scheduler = self._store.scheduler
            scheduler.at(scheduler.time + LEASE_SECONDS, self.end_leases)
        else:
            self.end_leases()
            self.steps.lose()


class SimulatedStore(MovingStore):
    """The store. Its clock is the scheduler's time, after a start."""

    def __init__(
        self, kind: Kind, scheduler: Scheduler, faults: Faults, promises: Promises, clock: Any
    ) -> None:
        super().__init__()
        self.clock = clock
        self.kind, self.scheduler, self.faults, self.promises = kind, scheduler, faults, promises

    def claim_key(self, message: Message) -> str:
        return str(message.due_us) if self.kind is Kind.BY_DUE else message.key

    @contextmanager
    def open_task(self) -> Iterator[SimulatedTask]:
        session = _SESSIONS[self.kind](self)
        try:
            session.steps.step("open a task's session")
            yield session
        finally:
            session.steps.lose()

    def open_driver(self) -> SimulatedDriver:
        session = SimulatedDriver(self)
        session.steps.step("open a driver's session")
        return session

    @contextmanager
    def open_changes(self) -> Iterator[SimulatedChanges]:
        session = SimulatedChanges(self)
        try:
            session.steps.step("open an operator's session")
            yield session
        finally:
            session.steps.lose()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        if not self.scheduler.wait_for(condition, 10.0):
            raise _lost("Another session has held a lock for too long")


class SimulatedQueue(MemoryQueue):
    """The queues."""

    def __init__(self, *names: str, own_transaction: bool, store: SimulatedStore) -> None:
        super().__init__(*names, own_transaction=own_transaction)
        self.store = store

    @contextmanager
    def open(self, store: TaskSession) -> Iterator["SimulatedQueueSession"]:
        assert isinstance(store, SimulatedTask)
        yield SimulatedQueueSession(self, store)


class SimulatedQueueSession(MemoryQueueSession):
    """A session with the queues. With a transaction of its own, its commit is a step of its own."""

    def __init__(self, queue: SimulatedQueue, task: SimulatedTask) -> None:
        super().__init__(queue, task if queue.shares_transaction else None)
        self._task, self._queues = task, queue

    def deliver(
        self, destination: Destination, messages: Sequence[Message]
    ) -> dict[str, MessageError]:
        self._task.steps.step(f"deliver to {destination}", DestinationError)
        promises = self._queues.store.promises
        refused = super().deliver(destination, messages)
        promises.note_refused(refused)
        sent = [one for one in messages if one.key not in refused]
        task, name = self._task, str(destination)

        def arrive() -> None:
            promises.check_arrived(task, name, sent)

        if self._store is not None:
            self._store.enlist(arrive)
        else:
            self._sent.append(arrive)
        return refused

    def commit(self) -> None:
        if self._sent:
            self._task.steps.step("the queue's commit")
        super().commit()


class SimulatedTables(MemoryTables):
    """The tables of the ledger. Its storage may be out of order."""

    def __init__(self, scheduler: Scheduler, faults: Faults) -> None:
        super().__init__()
        self._scheduler, self._faults = scheduler, faults
        self.is_down = False

    def write(self, pieces: Sequence[LedgerPiece]) -> None:
        name = pieces[0].table
        self._step(f"write {name}")
        super().write(pieces)
        self._step(f"the answer to the write of {name}")

    def create(self, name: str, properties: Mapping[str, str]) -> None:
        self._step(f"create {name}")
        super().create(name, properties)

    def _step(self, what: str) -> None:
        self._scheduler.step(what)
        if self.is_down:
            raise LedgerError("The storage is out of order", transient=True)
        kinds = (Fault.ERROR, Fault.KILLED, Fault.FROZEN)
        # A storage has no connection that could be lost.
        steps = Steps(self._scheduler, self._faults, lambda: None)
        try:
            self._faults.strike(
                what, steps, lambda text: LedgerError(text, transient=True), kinds=kinds
            )
        finally:
            steps.lose()
