"""Runs one trial: the sweep with the fault, the sweeps that recover, and the verdict."""

import random
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from psycopg.conninfo import make_conninfo

from duesweep.drivers.sqlserver.dsn import OdbcDsn
from support import commands
from support.faults.power import note_synced
from support.trials import faults
from support.trials.crowd import Crowd
from support.trials.faults import CLOCKS, LEDGER_HARMS, QUEUE, SPARK, STORE
from support.trials.harmful_proxy import Harm, HarmfulProxy, harmful_proxy
from support.trials.harms import Scene, strike
from support.trials.history import History, Verdict, judge
from support.trials.places import open_world
from support.trials.points import HOLD, RAISE, Plan
from support.trials.processes import (
    Ending,
    SparkCommand,
    SweepCommand,
    document_of,
    start_mover,
)
from support.trials.services import Services, faketime
from support.trials.trial import Trial
from support.trials.world import BROKER, OTHER_DATABASE, SQL_SERVER, World
from support.waiting import until

# A command that takes longer hangs.
_COMMAND_SECONDS = 120
_RECOVERY_SECONDS, _SLOW_RECOVERY_SECONDS = 90, 300
_NEVER_SPARK = 1_000_000
# Each wait of the sweep's is a part of it.
_SHORT_SILENCE_SECONDS, _LONG_SILENCE_SECONDS = 6, 45
_BATCH = b"sweep_id, slice, kind, dispatched"
_PUBLISHED = b"NServiceBus.MessageIntent"

# After these a process with a warm session is of no more use, whatever it says.
_DEADLY = {faults.JVM, faults.KILL, faults.TERMINATE, faults.INTERRUPT}

DONE, UNEXPECTED, CONFIGURATION, FAILURES, WORK_LEFT, INTERRUPTED = 0, 1, 2, 3, 4, 130
_ALLOWED = {
    faults.UNFORESEEN: {UNEXPECTED},
    faults.KILL: {-signal.SIGKILL},
    faults.POWER: {-signal.SIGKILL},
    faults.INTERRUPT: {INTERRUPTED},
    faults.HALF_DELETED: {CONFIGURATION},
    faults.OTHER_LEDGER: {CONFIGURATION},
    faults.CROWD: {-signal.SIGKILL},
}


@dataclass(frozen=True, slots=True)
class Seen:
    """The state right after a command: messages that it should have delivered, and rows that
    are not settled. `is_alone`: no other process held rows.
    """

    waiting: int
    unsettled: int
    is_alone: bool = True

    @property
    def is_clean(self) -> bool:
        return not self.waiting and not self.unsettled


def untrue_ends(harm: str | None, ending: Ending, seen: Seen) -> Iterator[str]:
    """The faults in the end of a command; `harm` was done to it, or None."""
    code, document = ending.code, ending.document
    if code is None:
        yield "it did not end in time"
        return
    usual = {DONE, FAILURES, WORK_LEFT} if harm != faults.KILL else set()
    if code not in usual | _ALLOWED.get(str(harm), set()):
        yield f"exit code {code} after {harm}: {ending.said[-2_000:]}"
    if code < 0:
        return
    if document is None or document["exit_code"] != code:
        yield f"exit code {code}, but the document says {document and document['exit_code']}"
        return
    if code in {DONE, FAILURES}:
        yield from _untrue_success(code, document, seen)
    elif not document["error"]:
        yield f"exit code {code} without a reason"
    if code == WORK_LEFT:
        yield from _untrue_rest(harm, document, seen)


def _untrue_success(code: int, document: Mapping[str, Any], seen: Seen) -> Iterator[str]:
    if document["outcome"] == "stopped":
        return
    # Rows that others hold are their work.
    if not seen.is_clean and seen.is_alone and not document["skipped"]:
        left = f"{seen.waiting} messages waiting and {seen.unsettled} rows unsettled"
        yield f"exit code {code} with {left}"
    failed = (document["failed"] or 0) + (document["exhausted"] or 0)
    if bool(failed) != (code == FAILURES):
        yield f"exit code {code} with {failed} failures"


def _untrue_rest(harm: str | None, document: Mapping[str, Any], seen: Seen) -> Iterator[str]:
    if harm is None and seen.is_clean:
        yield f"exit code 4 ({document['error']}) with nothing left"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a trial. `codes` are the exit codes of all commands, the first `harmed` of
    which met the fault. `fired` are the crash points at which the sweeps that met it were harmed.
    `recovery_seconds`: from the harm to the end of the sweep that left nothing; None: none did.
    """

    trial: Trial
    verdict: Verdict
    bound: int
    codes: Sequence[int | None]
    harmed: int
    problems: Sequence[str]
    fired: Sequence[str]
    recovery_seconds: float | None
    seconds: float

    @property
    def harmed_codes(self) -> Sequence[int | None]:
        return self.codes[: self.harmed]

    @property
    def is_good(self) -> bool:
        """Whether the promise was kept, and every word was true."""
        verdict = self.verdict
        within = verdict.doubled <= self.bound
        return not (verdict.lost or verdict.early or verdict.untrue or self.problems) and within


@dataclass
class _Run:
    """A trial under way."""

    trial: Trial
    services: Services
    world: World
    folder: Path
    codes: list[int | None] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    fired: list[str] = field(default_factory=list)
    cuts: int = 1
    struck: float = 0.0
    clean: float | None = None

    def recover(self) -> None:
        """Sweep until nothing is left; keep when that was."""
        slow = self._slices_wait_for_each_other
        seconds = _SLOW_RECOVERY_SECONDS if slow else _RECOVERY_SECONDS
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ending = self._sweep()
            seen = self.see()
            self.note(None, ending, seen)
            if ending.code == DONE and seen.is_clean:
                return
        self.problems.append(f"sweeps did not recover in {seconds} s")

    def note(self, harm: str | None, ending: Ending, seen: Seen) -> None:
        if seen.is_clean and self.clean is None and self.struck:
            self.clean = time.monotonic()
        self.codes.append(ending.code)
        self.problems += untrue_ends(harm, ending, seen)

    def see(self, *, is_alone: bool = True) -> Seen:
        is_alone = is_alone and not self._slices_wait_for_each_other
        return Seen(len(self.world.waiting_good()), self.world.unsettled(), is_alone)

    @property
    def _slices_wait_for_each_other(self) -> bool:
        """If claims skip no rows, they miss some after a wait, and the next sweep finds them."""
        can_skip = self.world.endpoint.server.abilities.skips_locked
        return self.trial.slices > 1 and not can_skip

    def config(self, name: str, **more: object) -> Path:
        trial = self.trial
        settings: dict[str, object] = {
            "store__name": "trial",
            "sweep__batch_rows": trial.batch_rows,
            "sweep__slices": trial.slices,
            "sweep__spark_from": _NEVER_SPARK,
            "retry__max_attempts": trial.max_attempts,
            "retry__initial_seconds": trial.back_off_seconds,
            "ledger__root": str(self.ledger_root),
            **({"retry__error_queue": "error"} if trial.has_error_queue else {}),
            **self.world.settings,
        }
        return self.world.endpoint.config_file(**settings | more).rename(self.folder / name)

    @property
    def ledger_root(self) -> Path:
        """On the small disk, if the ledger is harmed."""
        on_disk = self.trial.fault.harm in LEDGER_HARMS
        return (self.services.disk.folder if on_disk else self.folder) / "ledger"

    def _sweep(self) -> Ending:
        """A sweep in this process after any engine: each engine and writer continues the others'
        work.
        """
        return sweep_here(self.config("recovery.toml"))


def sweep_here(file: Path) -> Ending:
    ran = commands.run("sweep", "--json", "--config", str(file))
    return Ending(int(ran.code), document_of(ran.out), ran.err)


def run_trial(trial: Trial, services: Services) -> Result:
    started = time.monotonic()
    folder = services.folder / f"trial-{trial.seed}"
    folder.mkdir()
    with open_world(trial.place, services, folder) as world:
        run = _Run(trial, services, world, folder)
        world.ledger_root = run.ledger_root
        if trial.fault.stage != "first ledger":
            world.load_one()
            assert sweep_here(run.config("first.toml")).code == DONE
        if trial.fault.harm == faults.CROWD:
            _crowd(run)
        else:
            world.load(random.Random(trial.seed), has_bad=trial.has_bad)
            _harm(run)
        run.recover()
        verdict = judge(History.of(world))
    shutil.rmtree(folder)
    if trial.fault.harm in LEDGER_HARMS:
        shutil.rmtree(run.ledger_root)
        shutil.rmtree(run.ledger_root.with_name("other"), ignore_errors=True)
    ended = time.monotonic()
    recovery = None if run.clean is None else max(0.0, run.clean - run.struck)
    return Result(
        trial,
        verdict,
        bound=trial.bound * run.cuts,
        codes=run.codes,
        harmed=run.cuts,
        problems=run.problems,
        fired=run.fired,
        recovery_seconds=recovery,
        seconds=ended - started,
    )


def _crowd(run: _Run) -> None:
    run.world.load(random.Random(run.trial.seed), has_bad=run.trial.has_bad)
    crowd = Crowd(run.trial.seed, run.world, run.folder, run.config("crowd.toml"))
    for ending in crowd.run():
        run.struck = time.monotonic()
        run.codes.append(ending.code)
        seen = Seen(0, 0, is_alone=False)
        run.problems += untrue_ends(faults.CROWD, ending, seen)
    run.cuts = len(run.codes)
    run.fired += [point for plan in crowd.plans if (point := plan.fired_point) is not None]


def _harm(run: _Run) -> None:
    fault = run.trial.fault
    with _between(run.trial, run.services, run.world) as (proxies, settings):
        if run.trial.engine == SPARK:
            settings |= {"sweep__spark_from": 0, "ledger__writer": run.trial.writer}
        action = RAISE if fault.harm == faults.UNFORESEEN else HOLD
        plan = Plan(str(run.folder), run.trial.point, run.trial.occurrence, action)
        arguments = ["sweep", "--json", "--config", str(run.config("harmed.toml", **settings))]
        for proxy in proxies:
            proxy.harm_at(
                *_awaited(run.trial),
                harm=Harm(fault.harm),
                when=fault.when,  # type: ignore[arg-type]
            )
        command = _start(run, plan, arguments)
        scene = Scene(run.services, run.world, plan, command, run.ledger_root, fault.stage)
        is_hit = _strike(run, scene, proxies)
        ending = command.wait(_COMMAND_SECONDS)
        scene.heal()
    # A command's process ends with it; this one would keep a lease that it cannot give back.
    is_over = ending.code == WORK_LEFT and run.world.unsettled()
    if run.trial.engine == SPARK and (fault.harm in _DEADLY or is_over):
        run.services.drop_spark()
    if not is_hit:
        run.problems.append(f"the fault did not happen; exit code {ending.code}: {ending.said}")
    ran = ending.document and ending.document["engine"]
    if ran and ran != run.trial.engine:
        run.problems.append(f"the sweep ran {ran}, not {run.trial.engine}")
    harm = fault.harm if isinstance(fault.harm, str) else fault.harm.value
    run.note(harm, ending, run.see(is_alone=not run.trial.has_mover))


@contextmanager
def _between(
    trial: Trial, services: Services, world: World
) -> Iterator[tuple[list[HarmfulProxy], dict[str, Any]]]:
    """The proxy that the fault needs, and the settings that lead through it."""
    side = trial.fault.side
    settings: dict[str, Any] = {}
    if side is None:
        yield [], settings
        return
    settings["timeouts__silence_seconds"] = _SHORT_SILENCE_SECONDS
    with ExitStack() as stack:
        is_broker = side == QUEUE and world.place == BROKER
        if world.place == SQL_SERVER:
            pairs = OdbcDsn.parse(world.endpoint.dsn).pairs
            proxy = stack.enter_context(harmful_proxy(OdbcDsn(pairs).port))
            # What passes has to be read.
            own = {"server": f"127.0.0.1,{proxy.port}", "encrypt": "no"}
            settings["store__dsn"] = OdbcDsn(pairs | own).text()
            if world.endpoint.server.stand_in is not None:
                # Whose first statements in a session take seconds.
                settings["timeouts__silence_seconds"] = _LONG_SILENCE_SECONDS
            yield [proxy], settings
            return
        server = services.server if side == STORE else services.queue_server
        target = services.broker.amqp if is_broker else server.port
        proxy = stack.enter_context(harmful_proxy(target))
        if side == STORE:
            dsn = make_conninfo(world.endpoint.dsn, host="127.0.0.1", port=proxy.port)
            settings["store__dsn"] = dsn
        elif is_broker:
            vhost = str(world.settings["queues__default__url"]).rpartition("/")[2]
            settings["queues__default__url"] = services.broker.url(vhost, proxy.port)
        else:
            dsn = str(world.settings["queues__default__dsn"])
            settings["queues__default__dsn"] = make_conninfo(dsn, host="127.0.0.1", port=proxy.port)
        yield [proxy], settings


def _awaited(trial: Trial) -> Sequence[bytes]:
    """The data of the connection when it is harmed: the COMMIT of a batch, or its messages."""
    if trial.fault.side == STORE:
        once: tuple[bytes, ...] = (_BATCH, b"COMMIT")
        if trial.place == SQL_SERVER:
            once = tuple(text.decode().encode("utf-16-le") for text in once)
    elif trial.place == OTHER_DATABASE:
        once = (b"PGCOPY", b"COMMIT")
    else:
        once = (_PUBLISHED,)
    return once * trial.occurrence


def _start(run: _Run, plan: Plan, arguments: Sequence[str]) -> SweepCommand | SparkCommand:
    if run.trial.engine == SPARK:
        return run.services.spark.start(plan, arguments)
    environment: Mapping[str, str] = {}
    if run.trial.fault.harm == faults.POWER:
        note_synced(plan.synced, run.ledger_root)
    if run.trial.fault.harm in CLOCKS:
        environment = {
            "LD_PRELOAD": str(faketime()),
            "FAKETIME": CLOCKS[str(run.trial.fault.harm)],
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
    return SweepCommand(run.folder, plan, arguments, **environment)


def _strike(run: _Run, scene: Scene, proxies: Sequence[HarmfulProxy]) -> bool:
    """Do the harm when it is time; whether that came."""
    run.struck = time.monotonic()
    for proxy in proxies:
        until(lambda: proxy.has_sprung.is_set() or scene.command.is_over)  # noqa: B023 - used here
        run.struck = time.monotonic()
        return proxy.has_sprung.is_set()
    if run.trial.point is None:
        return True
    until(lambda: scene.plan.fired.exists() or scene.command.is_over)
    run.struck = time.monotonic()
    point = scene.plan.fired_point
    if point is None:
        return False
    run.fired.append(point)
    if run.trial.has_mover:
        mover = start_mover(run.world)
        scene.healing += [mover.wait, mover.kill]
    if run.trial.fault.harm != faults.UNFORESEEN:
        strike(str(run.trial.fault.harm), scene)
    scene.plan.resume.touch()
    return True
