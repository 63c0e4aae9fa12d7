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

import psycopg
from testbed import Load, Testbed
from watch import arrivals, store

from duesweep_testing.folder import write_config
from duesweep_testing.server import EmbeddedServer
from duesweep_testing.traffic import ENDPOINT

ROOT = Path(__file__).resolve().parent.parent
# The crash points are the tests' own.
sys.path.insert(0, str(ROOT / "tests"))
from support.postgresql_server import endpoint_in_postgresql  # noqa: E402 - as above
from support.trials.points import FREEZE, WHEN, Plan  # noqa: E402

_SCRIPT = ROOT / "tests" / "support" / "trials" / "sweep_command.py"
POINTS = (
    *("after DriverSession.open_sweep", "before DriverSession.plan", "after TaskSession.claim"),
    *(f"{when} COMMIT of TaskSession.transaction" for when in WHEN),
    *("after TaskSession.end_slice", "after DriverSession.close_sweep", "after DriverSession.seal"),
    *(f"{when} LedgerTables.append(tombstones)" for when in WHEN),
    *(f"{when} DriverSession.delete_settled" for when in WHEN),
)
_WARM_SECONDS, _LATE_SECONDS, _MUCH_LATE_SECONDS = 4, 8, 3
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
    parser.add_argument("--fleet", action="store_true", help="freeze a database of a fleet instead")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "frozen")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder.absolute()) as own:
        run = _run_fleet if options.fleet else _run
        figures = run(options, Path(own))
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
        stack.enter_context(_watcher([file], Plan(str(meeting)), meeting / "healthy.log"))
        time.sleep(_WARM_SECONDS)
        store(testbed, options.rate * options.seconds, options.rate)
        plan = Plan(str(meeting), point, _OCCURRENCE, FREEZE)
        stack.enter_context(_watcher([file], plan, meeting / "frozen.log"))
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


def _run_fleet(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Watch five endpoints with one ledger, the fifth in a server of its own, which is frozen for
    `seconds`. How late the messages of the other four were, which came due meanwhile.
    """
    with (
        EmbeddedServer(folder / "four", timezone="UTC", track_commit_timestamp="on") as four,
        EmbeddedServer(folder / "fifth", timezone="UTC") as fifth,
        psycopg.connect(four.dsn, autocommit=True) as admin,
        psycopg.connect(fifth.dsn, autocommit=True) as admin_of_fifth,
    ):
        endpoints = [_endpoint(folder, four.dsn, admin, number) for number in range(4)]
        last = _endpoint(folder, fifth.dsn, admin_of_fifth, 4)
        files = [
            endpoint.config_file(ledger__root=str(folder / "ledger")) for endpoint in endpoints
        ]
        files.append(last.config_file(ledger__root=str(folder / "ledger")))
        log = folder / "fleet.log"
        with _watcher(files, Plan(str(folder)), log):
            time.sleep(2 * _WARM_SECONDS)
            for tenth in range(-50, 10 * (options.seconds + 5)):
                for endpoint in (*endpoints, last):
                    per_tenth = max(1, options.rate // 50)
                    endpoint.delay_many(per_tenth, due_in_seconds=15 + tenth / 10)
            time.sleep(15)
            _signal_server(folder / "fifth", signal.SIGSTOP)
            time.sleep(options.seconds)
            _signal_server(folder / "fifth", signal.SIGCONT)
            time.sleep(15)
        for file in files:
            _command(file, "sweep")
        late = _lateness(folder / "ledger")
        stored = 4 * (10 * (options.seconds + 5) + 50) * per_tenth
        delivered = sum(
            len(endpoint.queue_rows(f"s{n}.Billing")) for n, endpoint in enumerate(endpoints)
        )
        figures = [
            {
                "messages": stored,
                "lost": max(0, stored - delivered),
                "doubled": max(0, delivered - stored),
                "less_than_3_s_late": round(
                    sum(each < _MUCH_LATE_SECONDS for each in late) / len(late), 4
                ),
                "max_seconds": round(max(late), 2),
                "audit": max(_command(file, "audit") for file in files),
            }
        ]
        print(json.dumps(figures))
        return figures


def _endpoint(folder: Path, dsn: str, admin: "psycopg.Connection[Any]", number: int) -> Any:
    own = folder / f"endpoint{number}"
    own.mkdir()
    admin.execute(f"CREATE SCHEMA s{number}".encode())
    endpoint = endpoint_in_postgresql(dsn, own, admin, schema=f"s{number}")
    return endpoint.set_up("Billing", ledger__root=str(folder / "ledger"))


def _lateness(ledger: Path) -> list[float]:
    """Seconds from Due to dispatch of the messages in the first server, as the ledger has them."""
    from deltalake import DeltaTable  # noqa: PLC0415 - slow

    rows = DeltaTable(ledger / "tombstones").to_pyarrow_table(columns=["source", "lateness_ms"])
    return [row["lateness_ms"] / 1_000 for row in rows.to_pylist() if "/s4." not in row["source"]]


def _signal_server(folder: Path, number: int) -> None:
    [postmaster] = [int(p.read_text().split()[0]) for p in folder.rglob("postmaster.pid")]
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    for process in (postmaster, *map(int, children)):
        os.kill(process, number)


@contextmanager
def _watcher(files: Sequence[Path], plan: Plan, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "lib")}
    command = [sys.executable, str(_SCRIPT), "once", plan.text(), "watch", *_configs(files)]
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, stderr=stderr, env=environment)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait(120)


def _configs(files: Sequence[Path]) -> list[str]:
    return [text for file in files for text in ("--config", str(file))]


def _command(file: Path, *arguments: str) -> int:
    command = [sys.executable, "-m", "duesweep", *arguments, *_configs([file])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        print(done.stdout[-2_000:], done.stderr[-2_000:], file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
