"""Two watchers serve an endpoint, and one is frozen (SIGSTOP) at a point of its tick: how late the
other's messages are, how long a sweep beside them takes, and whether the ledger is true at the end.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from testbed import Load, Testbed
from watch import arrivals, store

from duesweep.demo.folder import clear_folder, lock_folder, write_config
from duesweep.demo.messages import ENDPOINT
from duesweep.demo.server import EmbeddedServer

ROOT = Path(__file__).resolve().parent.parent
# The crash points are the tests' own.
sys.path.insert(0, str(ROOT / "tests"))
from support.trials.points import FREEZE, Plan  # noqa: E402 - as above

_SCRIPT = ROOT / "tests" / "support" / "trials" / "sweep_command.py"
POINTS = (
    *("after open", "before plan", "after claim", "before commit", "after commit"),
    *("after end of slice", "after close", "after seal", "before append to tombstones"),
    *("after append to tombstones", "before delete journal", "after delete journal"),
)
_WARM_SECONDS, _LATE_SECONDS = 4, 8
# The tick at which a watcher freezes: its first ones settle what the part before has left.
_OCCURRENCE = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Freeze a watcher at each point. Returns 1 if a message was lost or doubled, or the audit has
    found something.
    """
    parser = argparse.ArgumentParser(prog="bench/run frozen", description=__doc__)
    parser.add_argument("--seconds", type=int, default=20, help="of load for each point")
    parser.add_argument("--rate", type=int, default=100, help="messages a second")
    parser.add_argument("--points", nargs="*", default=POINTS, choices=POINTS, metavar="POINT")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "frozen")
    options = parser.parse_args(arguments)
    folder: Path = options.folder.absolute()
    with lock_folder(folder):
        clear_folder(folder)
        try:
            figures = _run(options, folder)
        finally:
            clear_folder(folder)
    bad = [part for part in figures if part["lost"] or part["doubled"] or part["audit"]]
    return int(bool(bad))


def _run(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    figures = []
    with EmbeddedServer(folder, timezone="UTC", track_commit_timestamp="on") as server:
        settings = {
            "store": {"kind": "postgresql", "dsn": server.dsn, "endpoint": ENDPOINT},
            "ledger": {"root": str(folder / "ledger")},
        }
        file = folder / "duesweep.toml"
        config = write_config(file, settings, "Written by bench/run.")
        testbed = Testbed(config, Load(options.rate * options.seconds))
        testbed.prepare()
        for point in options.points:
            figures.append({"point": point, **_part(testbed, options, point, file)})
            print(json.dumps(figures[-1]), flush=True)
    return figures


def _part(testbed: Testbed, options: argparse.Namespace, point: str, file: Path) -> dict[str, Any]:
    meeting = Path(tempfile.mkdtemp(dir=file.parent))
    with ExitStack() as stack:
        stack.enter_context(_watcher(file, Plan(str(meeting)), meeting / "healthy.log"))
        time.sleep(_WARM_SECONDS)
        store(testbed, options.rate * options.seconds, options.rate)
        plan = Plan(str(meeting), point, _OCCURRENCE, FREEZE)
        stack.enter_context(_watcher(file, plan, meeting / "frozen.log"))
        end = time.monotonic() + options.seconds
        while not plan.fired.exists() and time.monotonic() < end:
            time.sleep(0.05)
        has_frozen = plan.fired.exists()
        time.sleep(2)
        began = time.monotonic()
        code = _command(file, "sweep", "--max-seconds", "5")
        swept = round(time.monotonic() - began, 1)
        time.sleep(max(0.0, end + _LATE_SECONDS - time.monotonic()))
        figures = arrivals(testbed, 0)
    # The frozen one goes on before it ends, and delivers or gives back what it had claimed.
    _command(file, "sweep")
    held = figures.pop("lost")
    last = arrivals(testbed)
    return figures | {
        **{name: last[name] for name in ("lost", "doubled", "early")},
        "held_by_the_frozen": held,
        "has_frozen": has_frozen,
        "sweep_beside_seconds": swept,
        "sweep_beside_code": code,
        "audit": _command(file, "audit"),
    }


@contextmanager
def _watcher(file: Path, plan: Plan, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    environment = {k: v for k, v in os.environ.items() if k != "PYSPARK_SUBMIT_ARGS"}
    environment["PYTHONPATH"] = str(ROOT / "lib")
    command = [sys.executable, str(_SCRIPT), "once", plan.text(), "watch", "--config", str(file)]
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, stderr=stderr, env=environment)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait(120)


def _command(file: Path, *arguments: str) -> int:
    command = [sys.executable, "-m", "duesweep", *arguments, "--config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        print(done.stdout[-2_000:], done.stderr[-2_000:], file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
