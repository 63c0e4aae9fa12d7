"""The harm of a trial to a sweep that has come to its point, and how it is undone."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from duesweep.core.policy import LedgerWriter
from duesweep.drivers.sqlserver.dsn import odbc
from duesweep.ledger.ledger import open_ledger
from support.faults.power import lose_unsynced
from support.rabbitmq.broker import Broker
from support.trials import faults
from support.trials.points import Plan
from support.trials.processes import SparkCommand, SweepCommand
from support.trials.services import Services
from support.trials.world import SQL_SERVER, World

_POLL_SECONDS = 0.01
_ENDED_ON_SQL_SERVER = (
    "SELECT session_id FROM sys.dm_exec_sessions"
    " WHERE program_name = 'duesweep' AND database_id = DB_ID()"
)
_ENDED = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'duesweep%'"
)


@dataclass
class Scene:
    """A sweep at its point. `healing` undoes the harms, latest first."""

    services: Services
    world: World
    plan: Plan
    command: SweepCommand | SparkCommand
    ledger_root: Path
    stage: str | None
    healing: list[Callable[[], object]] = field(default_factory=list)

    def heal(self) -> None:
        while self.healing:
            self.healing.pop()()


def strike(harm: str, scene: Scene) -> None:
    _STRIKES[harm](scene)


def _signal_driver(number: int) -> Callable[[Scene], None]:
    return lambda scene: os.kill(scene.command.pid, number)


def _fail_power(scene: Scene) -> None:
    """The driver dies, and files of the ledger that it did not sync are lost."""
    os.kill(scene.command.pid, signal.SIGKILL)
    while not scene.command.is_over:
        time.sleep(_POLL_SECONDS)
    lose_unsynced(scene.plan.synced, scene.ledger_root, None, scene.command.pid)


def _kill_jvm(scene: Scene) -> None:
    assert isinstance(scene.command, SparkCommand)
    os.kill(scene.command.driver.jvm, signal.SIGKILL)


def _kill_worker(scene: Scene) -> None:
    os.kill(scene.plan.fired_pid, signal.SIGKILL)


def _end_sessions(scene: Scene) -> None:
    endpoint = scene.world.endpoint
    if scene.world.place != SQL_SERVER:
        endpoint.fetch(_ENDED)
        return
    # Babelfish keeps the application locks of a session that is killed within a statement.
    some = "" if endpoint.server.stand_in is None else " AND status = 'sleeping'"
    for session in endpoint.fetch(_ENDED_ON_SQL_SERVER + some):
        # It may have ended by itself.
        with suppress(odbc().Error):
            endpoint.execute(f"KILL {session.session_id}")


def _restart(scene: Scene) -> None:
    scene.services.server.restart()


def _stop(scene: Scene) -> None:
    scene.services.server.stop()
    scene.healing.append(scene.services.server.start)


def _restart_queues(scene: Scene) -> None:
    scene.services.queue_server.restart()


def _kill_broker(scene: Scene) -> None:
    scene.services.broker.kill()
    scene.healing.append(scene.services.broker.start)


def _cut_broker(scene: Scene) -> None:
    vhost = str(scene.world.settings["queues__default__url"]).rpartition("/")[2]
    broker = Broker(scene.services.broker, vhost)
    broker.cut_connections()
    broker.connection.close()


def _fill(scene: Scene) -> None:
    scene.services.disk.fill()
    scene.healing.append(scene.services.disk.free)


def _make_read_only(scene: Scene) -> None:
    folder = str(scene.services.disk.folder)

    def remount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", folder], check=True)

    remount("ro")
    scene.healing.append(lambda: remount("rw"))


def _move_away(scene: Scene, path: Path) -> Path:
    """Move a part of the ledger away, and back in the end: nothing may have taken its place."""
    away = scene.ledger_root.with_name("away")
    path.rename(away)

    def bring_back() -> None:
        # Threads write the tables together: a current write may leave files, but no table.
        first = f"{0:020}.json"
        assert not any(path.rglob(f"_delta_log/{first}")), f"{path} was created anew"
        shutil.rmtree(path, ignore_errors=True)
        away.rename(path)

    scene.healing.append(bring_back)
    return away


def _delete_half(scene: Scene) -> None:
    _move_away(scene, scene.ledger_root / "tombstones")


def _replace_ledger(scene: Scene) -> None:
    root = scene.ledger_root
    other = root.with_name("other")
    open_ledger(str(other), LedgerWriter.DELTA_RS, None).create()
    before = _files(other)
    _move_away(scene, root)
    other.rename(root)

    def check() -> None:
        after = _files(root)
        root.rename(other)
        # Unless it took the place of ours between two appends.
        if scene.stage != "settle":
            assert after == before, "the other ledger was written to"

    scene.healing.append(check)


def _files(root: Path) -> Mapping[str, int]:
    return {
        str(file.relative_to(root)): file.stat().st_size
        for file in root.glob("*/**/*")
        if file.is_file()
    }


_STRIKES: Mapping[str, Callable[[Scene], None]] = {
    faults.KILL: _signal_driver(signal.SIGKILL),
    faults.TERMINATE: _signal_driver(signal.SIGTERM),
    faults.INTERRUPT: _signal_driver(signal.SIGINT),
    faults.JVM: _kill_jvm,
    faults.POWER: _fail_power,
    faults.WORKER: _kill_worker,
    faults.SESSIONS: _end_sessions,
    faults.RESTART: _restart,
    faults.STOP: _stop,
    faults.QUEUE_CRASH: _restart_queues,
    faults.BROKER_KILL: _kill_broker,
    faults.BROKER_CUT: _cut_broker,
    faults.DISK_FULL: _fill,
    faults.READ_ONLY: _make_read_only,
    faults.HALF_DELETED: _delete_half,
    faults.OTHER_LEDGER: _replace_ledger,
}
