"""One simulated run: sweeps, watchers, the endpoint and operators, whose calls a seed orders.

The code of sweeps, slices, settling and commands is duesweep's own; store, queues, ledger, clocks
and processes are simulated. After a time without faults all that is due has to be delivered, and
each promise is checked.
"""

import json
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from uuid import UUID

from duesweep.core.account import SweepReport, add_ends
from duesweep.core.change import MessageFilter
from duesweep.core.errors import ConfigError, DestinationError, DuesweepError, RefusedMessageError
from duesweep.core.exhausted import ErrorFilter
from duesweep.core.policy import BatchSize, BreakerTimes, RateLimit, RateLimits, Retry, Slicing
from duesweep.core.times import Moment
from duesweep.core.world import Clock, SettableClock, World
from duesweep.ledger.ledger import Ledger
from duesweep.operations.change import cancel, reschedule
from duesweep.operations.replay import replay
from duesweep.operations.restore import choose_cancelled, restore
from duesweep.stores.due import Due, Horizon, Slices
from duesweep.sweep.claim_keys import ClaimKeys, read_claim_keys
from duesweep.sweep.job import CutShort, Dispatched, Job, SweepContext
from duesweep.sweep.limits import Limited, dispatch_slice, wait_for_limits
from duesweep.sweep.rounds import Rounds
from duesweep.sweep.sessions import KeptSessions, OpenedSessions
from duesweep.sweep.slice import Slice
from duesweep.sweep.stop import Stop
from duesweep.sweep.sweep import sweep
from duesweep_testing.builders import DUE, DelayedRow, delayed_row
from duesweep_testing.memory_driver import MemoryPeople
from duesweep_testing.memory_ledger import MemoryContext
from duesweep_testing.sweeps import context_of
from support.simulation.faults import Faults
from support.simulation.promises import ERROR_QUEUE, BrokenPromiseError, Promises
from support.simulation.scheduler import Actor, KilledError, Process, Scheduler
from support.simulation.services import Kind, SimulatedQueue, SimulatedStore, SimulatedTables

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_START = DUE + timedelta(hours=1)
_QUEUES = ("Billing", "Shipping")
_LIMITS = RateLimits((RateLimit("Shipping", 0.5),))
ROLES = ("producer", "mover", "operator", "pauses", "weather", "storage", "backup", "returner")
# The time with faults, and the longest time after it until all is delivered, in seconds.
_FAULTY_SECONDS, _CALM_SECONDS = 60.0, 3_600.0
# The runs of a slice whose executors are lost, as on Spark.
_MOST_RUNS = 4


class ServerClock(SettableClock):
    """The servers' clock: the scheduler's time after a start."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def seconds(self) -> float:
        return (_START - _EPOCH).total_seconds() + self._scheduler.time


class ProcessClock(Clock):
    """A process's clock. Its time of day is wrong by `error_seconds`."""

    def __init__(self, scheduler: Scheduler, error_seconds: float) -> None:
        self._scheduler, self._error_seconds = scheduler, error_seconds

    def seconds(self) -> float:
        return self._scheduler.time

    def sleep(self, seconds: float) -> None:
        self._scheduler.sleep(seconds)

    def now(self) -> datetime:
        return _START + timedelta(seconds=self._scheduler.time + self._error_seconds)


@dataclass(frozen=True, slots=True)
class SimulatedWorld(World):
    """A process's world, whose chance follows from the seed."""

    seed: str = ""

    def chance(self) -> Random:
        return Random(self.seed)


@dataclass(frozen=True, slots=True)
class Settings:
    """The parts of a run. The seed decides all others, unless a failed run is made simpler."""

    seed: int
    messages: int
    sweepers: int
    watchers: int
    slices: int
    sessions: int
    batch_rows: int
    rarity: int
    kind: str
    has_executors: bool
    may_double: bool
    has_error_queue: bool
    roles: tuple[str, ...]
    has_limit: bool
    most_faults: int = 1_000

    @classmethod
    def of(cls, seed: int) -> "Settings":
        """The settings of a seed."""
        chance = Random(f"{seed}, settings")
        return cls(
            seed=seed,
            messages=chance.choice((3, 12, 40)),
            sweepers=chance.choice((1, 2, 3)),
            watchers=chance.choice((0, 0, 1, 2)),
            slices=chance.choice((1, 2, 3)),
            sessions=chance.choice((1, 2)),
            batch_rows=chance.choice((1, 3, 10)),
            rarity=chance.choice((20, 60, 200)),
            kind=chance.choice([*Kind]).value,
            has_executors=chance.random() < 0.4,
            may_double=chance.random() < 0.3,
            has_error_queue=chance.random() < 0.3,
            roles=tuple(role for role in ROLES if chance.random() < 0.5),
            has_limit=chance.random() < 0.3,
        )

    def written(self) -> str:
        """The points in which they differ from the seed's, as `--with` takes them."""
        usual = asdict(Settings.of(self.seed))
        changed = {name: value for name, value in asdict(self).items() if value != usual[name]}
        return json.dumps(changed)

    def smaller(self) -> Iterator["Settings"]:
        """Settings that are simpler in one point each."""
        for role in self.roles:
            yield replace(self, roles=tuple(each for each in self.roles if each != role))
        for name, least in _LEAST.items():
            value = getattr(self, name)
            for less in {least, value // 2, value - 1}:
                if least <= less < value:
                    yield replace(self, **{name: less})
        for name in ("has_executors", "has_error_queue", "has_limit"):
            if getattr(self, name):
                yield replace(self, **{name: False})


_LEAST = {"most_faults": 0, "messages": 1, "watchers": 0, "sweepers": 1, "slices": 1, "sessions": 1}


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended. `broken`: the promise that it broke, or the unexpected error; None: none."""

    settings: Settings
    broken: str | None
    sweeps: int
    steps: int
    faults: list[str]
    trace: list[str] = field(repr=False)


class SimulatedLimited(Limited):
    """Messages that wait for their limit, whose thread is an actor of the process."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._actors: list[Actor] = []

    def _start(self, work: Callable[[], None]) -> None:
        process = self._scheduler.current.process
        self._actors.append(self._scheduler.spawn(process, f"{process.name} limits", work))

    def _join(self) -> None:
        self._scheduler.wait_for(lambda: all(each.is_over for each in self._actors))

    def run(self, opened: OpenedSessions) -> None:
        try:
            super().run(opened)
        except DuesweepError:
            raise
        except Exception as error:
            # It would count as a sweep that was cut short.
            raise BrokenPromiseError(f"an unexpected error: {error!r}") from error

    def close(self) -> None:
        # As after an error. `Slice.interrupt` would end the simulation: actors are no threads.
        self._leaves = True


@dataclass(frozen=True, slots=True)
class SimulatedEngine:
    """Runs each slice as an actor: of the driver's process, or with `executors` of its own one."""

    simulation: "Simulation"
    name: str = "simulated"
    spark: None = None
    without_spark: None = None
    sessions: KeptSessions = field(default_factory=KeptSessions)

    def plan(self, due: Due, horizon: Horizon, context: SweepContext) -> Slices:  # noqa: ARG002
        return due.plan(horizon, Slicing(self.simulation.settings.slices))

    def dispatch(self, due: Due, plan: Slices, job: Job) -> Dispatched:
        simulation, slices = self.simulation, list[Slice]()
        keys = [read_claim_keys(due.claim_keys(plan, n)) for n in range(len(plan.planned))]
        if simulation.settings.has_executors:
            own = replace(job, limited=None)
            tasks = [_OnExecutors(simulation, own, n, each) for n, each in enumerate(keys)]
            simulation.scheduler.wait_for(lambda: all(each.is_over() for each in tasks))
            actors = [each.actor for each in tasks]
        else:
            sessions = simulation.settings.sessions
            slices = [Slice(job, number, each, sessions) for number, each in enumerate(keys)]
            actors = [actor for each in slices for actor in self._begin(each)]
            simulation.scheduler.wait_for(lambda: all(actor.is_over for actor in actors))
        errors = [each.error for each in actors if each.error is not None]
        for error in errors:
            if isinstance(error, ConfigError):
                return Dispatched(CutShort(str(error), is_lasting=True))
        if errors:
            return Dispatched(CutShort(str(errors[0])))
        known = [each.end for each in slices if each.end is not None]
        return Dispatched(None, add_ends(known) if len(known) == len(keys) else None)

    def _begin(self, of_slice: Slice) -> Iterator[Actor]:
        """The sessions of a slice, an actor each in the driver's process."""
        scheduler = self.simulation.scheduler
        process = scheduler.current.process

        def work() -> None:
            worker = of_slice.work(self.sessions.opened)
            if worker is not None:
                wait_for_limits(worker, self.sessions.opened)

        for session in range(of_slice.sessions):
            name = f"{process.name} slice {of_slice.number} session {session}"
            yield scheduler.spawn(process, name, work)

    def close(self) -> None:
        self.sessions.close()


class _OnExecutors:
    """A slice in processes of its own, as on Spark: if one dies, the next one runs it again."""

    def __init__(
        self, simulation: "Simulation", job: Job, number: int, claim_keys: ClaimKeys
    ) -> None:
        self._simulation, self._number = simulation, number
        self._work = partial(dispatch_slice, job, number, claim_keys)
        self._driver = simulation.scheduler.current.process
        self._runs = 0
        self.actor = self._start()

    def is_over(self) -> bool:
        is_lost = isinstance(self.actor.error, KilledError) and not self._driver.is_dead
        if self.actor.is_over and is_lost and self._runs < _MOST_RUNS:
            self.actor = self._start()
        return self.actor.is_over

    def _start(self) -> Actor:
        self._runs += 1
        name = f"{self._driver.name} slice {self._number}"
        process = Process(f"{name} run {self._runs}")
        self._simulation.note(process)
        return self._simulation.scheduler.spawn(process, name, self._work)


class Simulation:
    """A run of these settings."""

    def __init__(self, settings: Settings, *, keeps_trace: bool = False) -> None:
        self.settings = settings
        self.scheduler = Scheduler(settings.seed, (DuesweepError,), keeps_trace=keeps_trace)
        self._chance = Random(f"{settings.seed}, roles")
        self.faults = Faults(
            settings.seed, self.scheduler, settings.rarity, most=settings.most_faults
        )
        self._retry = Retry(
            max_attempts=2,
            initial_seconds=5.0,
            error_queue=ERROR_QUEUE if settings.has_error_queue else None,
            max_exhausted_per_sweep=3,
        )
        self.promises = Promises(settings.may_double, self._retry.max_exhausted_per_sweep)
        self.store = SimulatedStore(
            Kind(settings.kind),
            self.scheduler,
            self.faults,
            self.promises,
            ServerClock(self.scheduler),
        )
        self.promises.store = self.store
        self._queue = SimulatedQueue(
            *(*_QUEUES, ERROR_QUEUE), own_transaction=settings.may_double, store=self.store
        )
        self._tables = SimulatedTables(self.scheduler, self.faults)
        self._processes: list[Process] = []
        self.sweeps = 0

    def run(self) -> Result:
        """Run to the end, or to the first broken promise."""
        broken = None
        ids, waits = (Random(f"{self.settings.seed}, {name}") for name in ("ids", "waits"))
        chance = SimpleNamespace(Random=lambda: waits)
        with (
            patch("duesweep_testing.memory_driver.uuid4", lambda: _uuid(ids)),
            patch("duesweep.ledger.ledger.ThreadPoolExecutor", _InOneThread),
            patch("duesweep.drivers.statements.Clock", partial(ProcessClock, self.scheduler, 0.0)),
            patch("duesweep.drivers.statements.random", chance),
            patch("uuid.uuid4", lambda: _uuid(ids)),
            patch("duesweep.operations.command.command_ledger", _ledger),
            patch("duesweep.operations.restore.command_ledger", _ledger),
            patch("duesweep.operations.exhausted.command_ledger", _ledger),
        ):
            try:
                self._run()
            except (BrokenPromiseError, SystemExit, Exception) as error:  # noqa: BLE001 - it is the result
                broken = f"{type(error).__name__}: {error}"
            finally:
                self._end()
        trace = self.scheduler.trace or []
        faults = self.faults.happened
        return Result(self.settings, broken, self.sweeps, self.scheduler.steps, faults, trace)

    def _run(self) -> None:
        settings = self.settings
        self._store(settings.messages)
        for number in range(settings.sweepers):
            self._begin(f"sweeper {number}", self._sweep_again_and_again)
        for number in range(settings.watchers):
            self._begin(f"watcher {number}", partial(self._sweep_again_and_again, repeats=True))
        for role in settings.roles:
            self._begin(role, getattr(self, f"_{role}"))
        if "returner" in settings.roles:
            self._begin("other returner", self._returner)
        self._harm_later()
        self.scheduler.run(_FAULTY_SECONDS)
        self._calm_down()
        last = self._begin("last sweeper", self._sweep_until_all_is_done, again=False)
        self.scheduler.run(_FAULTY_SECONDS + _CALM_SECONDS, lambda: last.is_over)
        if not last.is_over:
            raise BrokenPromiseError(f"due messages are left after {_CALM_SECONDS:.0f} s of calm")
        self.promises.check_settled(self._tables)

    def _end(self) -> None:
        """No actor may do anything when its run is over."""
        self.faults.is_over = True
        for process in self._processes:
            self.scheduler.kill(process)
        self.scheduler.end()

    def _harm_later(self) -> None:
        def harm() -> None:
            self.faults.harm(self._processes)
            self._harm_later()

        seconds = self._chance.uniform(0.0, self.settings.rarity / 4)
        self.scheduler.at(self.scheduler.time + seconds, harm)

    def _calm_down(self) -> None:
        """The end of all faults. Frozen processes stay so, or die."""
        self.faults.is_over = True
        self._tables.is_down = False
        self._queue.trouble.clear()
        self.store.pauses.clear()
        for process in self._processes:
            is_frozen = process.frozen_until > self.scheduler.time
            if not (is_frozen and self._chance.random() < 0.8):
                self.scheduler.kill(process)

    def note(self, process: Process) -> None:
        """A process that has begun."""
        self._processes.append(process)

    def _begin(self, name: str, work: Any, *, again: bool = True) -> Actor:
        """Start a process. If it is killed, a new one begins after some time."""
        process = Process(name)
        self.note(process)
        actor = self.scheduler.spawn(process, name, work)
        if again:
            self._look_after(process, name, work)
        return actor

    def _look_after(self, process: Process, name: str, work: Any) -> None:
        def look() -> None:
            if self.faults.is_over:
                return
            if process.is_dead:
                self._begin(name, work)
            else:
                self._look_after(process, name, work)

        self.scheduler.at(self.scheduler.time + 5.0, look)

    # Roles.

    def _sweep_again_and_again(self, *, repeats: bool = False) -> None:
        context = self._context(repeats=repeats)
        rounds = self._rounds(context, never_ends=True) if repeats else None
        while True:
            self.scheduler.sleep(self._chance.uniform(0.0, 2.0 if repeats else 10.0))
            try:
                self._sweep(context, rounds)
            except ConfigError as error:
                raise BrokenPromiseError(
                    f"a passing fault counts as a wrong setting: {error}"
                ) from error
            except DuesweepError:
                continue

    def _sweep(self, context: MemoryContext, rounds: Rounds | None = None) -> SweepReport:
        self.sweeps += 1
        is_limited = not self.faults.is_over and self._chance.random() < 0.2
        stop = Stop(most=5 if is_limited else None, clock=context.world.clock)
        rounds = rounds or self._rounds(context)
        report = sweep(SimulatedEngine(self), context, stop=stop, rounds=rounds)
        self.promises.check_report(report)
        return report

    def _rounds(self, context: MemoryContext, *, never_ends: bool = False) -> Rounds:
        clock, rows = context.world.clock, context.batch_size.rows
        rounds = Rounds(context.breaker, clock, rows, never_ends=never_ends)
        rounds.limited = SimulatedLimited(self.scheduler)
        return rounds

    def _sweep_until_all_is_done(self) -> None:
        context = self._context()
        while True:
            try:
                self._sweep(context)
            except DuesweepError as error:
                if isinstance(error, ConfigError):
                    raise BrokenPromiseError(f"a sweep in calm is refused: {error}") from error
            store = self.store
            is_held = store.holders or store.settler is not None
            if not (store.sweeps or is_held or self._is_any_due() or self._is_any_frozen()):
                return
            self.scheduler.sleep(5.0)

    def _is_any_frozen(self) -> bool:
        """Whether a process that was frozen may still do something."""
        now = self.scheduler.time
        return any(each.frozen_until > now - 20.0 and not each.is_dead for each in self._processes)

    def _is_any_due(self) -> bool:
        return any(row.is_due(self.store.now) for row in self.store.rows.values())

    def _context(self, *, repeats: bool = False) -> MemoryContext:
        chance, settings = self._chance, self.settings
        error_seconds = chance.choice((0.0, 0.0, 3_600.0, -3_600.0))
        return context_of(
            self.store,
            self._queue,
            world=SimulatedWorld(
                ProcessClock(self.scheduler, error_seconds), f"{settings.seed}, {chance.random()}"
            ),
            batch_size=BatchSize(rows=settings.batch_rows),
            retry=self._retry,
            breaker=BreakerTimes(trigger_seconds=3.0),
            rate_limits=_LIMITS if settings.has_limit else RateLimits(),
            repeats=repeats,
            tables=self._tables,
        )

    def _store(self, count: int) -> None:
        chance, now = self._chance, self.store.now
        rows: list[DelayedRow] = []
        for _ in range(count):
            due = now + timedelta(seconds=chance.choice((-60.0, -60.0, -1.0, 10.0, 50.0)))
            row = delayed_row(chance.choice((*_QUEUES, None)), due=due)
            rows.append(replace(row, key=f"m{len(self.promises.stored) + len(rows)}"))
        self.promises.note_stored(rows)
        self.store.rows |= {row.key: row for row in rows}

    def _producer(self) -> None:
        while len(self.promises.stored) < 60:
            self.scheduler.sleep(self._chance.uniform(0.0, 8.0))
            self._store(self._chance.choice((1, 5)))

    def _mover(self) -> None:
        """The endpoint's own loop: lock one due message, remove and deliver it."""
        store = self.store
        while True:
            self.scheduler.sleep(self._chance.uniform(0.0, 3.0))
            due = [
                row
                for row in store.rows.values()
                if row.is_due(store.now) and row.key not in store.holders
            ]
            if not due:
                continue
            row = self._chance.choice(due)
            store.holders[row.key] = self
            try:
                self.scheduler.step("the endpoint moves a message")
                del store.rows[row.key]
                self.promises.moved.add(row.key)
            finally:
                del store.holders[row.key]

    def _operator(self) -> None:
        context = self._context()
        endpoint: Any = SimpleNamespace(context=context, source=context.store.source, spark=None)
        while True:
            self.scheduler.sleep(self._chance.uniform(0.0, 10.0))
            keys = self._chance.sample(sorted(self.store.rows), min(2, len(self.store.rows)))
            if not keys:
                continue
            wanted = MessageFilter(keys=tuple(keys))
            stop = Stop(clock=context.world.clock)
            try:
                if self._chance.random() < 0.5:
                    cancel(endpoint, wanted, reason="a test", stop=stop)
                else:
                    later = timedelta(seconds=self._chance.choice((-5, 5, 30)))
                    to = Moment(self.store.now + later)
                    reschedule(endpoint, wanted, to=to, reason="a test", stop=stop)
            except DuesweepError:
                continue

    def _returner(self) -> None:
        """Puts cancelled and exhausted messages back into the store."""
        context = self._context()
        endpoint: Any = SimpleNamespace(context=context, source=context.store.source, spark=None)
        while True:
            self.scheduler.sleep(self._chance.uniform(0.0, 15.0))
            stop = Stop(clock=context.world.clock)
            try:
                if self._chance.random() < 0.5:
                    keys = self._chance.sample(sorted(self.promises.stored), 3)
                    cancelled = choose_cancelled(endpoint, keys)
                    restore(endpoint, cancelled, reason="a test", stop=stop)
                else:
                    replay(endpoint, ErrorFilter(), reason="a test", everything=True, stop=stop)
            except DuesweepError:
                continue

    def _pauses(self) -> None:
        while True:
            self.scheduler.sleep(self._chance.uniform(0.0, 15.0))
            name = self._chance.choice(_QUEUES)
            if name in self.store.pauses:
                del self.store.pauses[name]
            else:
                people = MemoryPeople(self.store)
                people.pause(name, None, "someone", "a test")

    def _weather(self) -> None:
        while True:
            self.scheduler.sleep(self._chance.uniform(0.0, 12.0))
            name, kind = self._chance.choice(_QUEUES), self._chance.randrange(3)
            error: DuesweepError | None = None
            if kind == 1:
                error = RefusedMessageError("too large")
            elif kind == 2:
                error = DestinationError("locked")
            self._queue.trouble[name] = lambda _, error=error: error

    def _backup(self) -> None:
        """Bring settled sweeps back as they were, as from a backup of the journal."""
        store = self.store
        while True:
            self.scheduler.sleep(self._chance.uniform(0.0, 5.0))
            kept = {
                one.sweep_id: (one, [*store.journal[one.sweep_id]], [*store.changes[one.sweep_id]])
                for one in store.sweeps.values()
                if one.closed_at is not None
            }
            self.scheduler.sleep(self._chance.uniform(0.0, 10.0))
            for sweep_id, (closed, journal, changes) in kept.items():
                if sweep_id not in store.sweeps:
                    store.sweeps[sweep_id] = replace(closed, owner=None, in_flight=set())
                    store.journal[sweep_id], store.changes[sweep_id] = journal, changes

    def _storage(self) -> None:
        while True:
            self.scheduler.sleep(self._chance.uniform(0.0, 20.0))
            self._tables.is_down = not self._tables.is_down


@contextmanager
def _ledger(context: MemoryContext, _: object) -> Iterator[Ledger]:
    yield context.open_ledger()


class _InOneThread(Executor):
    """Does the work of a pool one after the other: a step belongs to one thread."""

    def __init__(self, _: int) -> None:
        """Of any size."""

    def submit(self, work: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments, **options))
        except Exception as error:  # noqa: BLE001 - as a pool does
            future.set_exception(error)
        return future


def _uuid(chance: Random) -> UUID:
    return uuid.UUID(int=chance.getrandbits(128), version=4)


def shrink(result: Result, most: int = 200) -> Result:
    """The simplest failing run that is found from a failed one with `most` further runs."""
    candidates = result.settings.smaller()
    for _ in range(most):
        settings = next(candidates, None)
        if settings is None:
            break
        found = Simulation(settings).run()
        if found.broken is not None:
            result, candidates = found, settings.smaller()
    return result
