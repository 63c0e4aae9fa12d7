"""How late messages are that a watcher delivers: under load, in a burst, and next to a watcher that
is killed or frozen.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import psycopg
from bed import Bed, Load, config_of, open_bed
from deltalake import DeltaTable
from measure import ROOT, Cpu, Faults, Figure, say
from sweeps import shell_command

# The crash points are the tests' own.
sys.path.insert(0, str(ROOT / "tests"))
from support.trials.points import FREEZE, WHEN, Plan

_EVERY_SECONDS = 10
# The time before the first message is due, and the longest time after the last one.
_LEAD_SECONDS, _MOST_SECONDS = 3, 300
_STORE = """
INSERT INTO {delayed} (id, headers, body, due)
SELECT id, headers, body,
       (now() AT TIME ZONE 'UTC') + make_interval(secs => %s + n / %s::float8)
FROM (SELECT *, row_number() OVER () AS n FROM bench_pristine LIMIT %s) p
"""
# All watchers get the due messages, in the order of their Dues.
_EXPECT = """
CREATE TABLE bench_expected AS
SELECT headers::json ->> 'NServiceBus.MessageId' AS message_id, due FROM {delayed}
"""
# The commit's own time, by the server's clock.
_ARRIVED = """
WITH arrived AS (
    SELECT message_id, count(*) AS copies, min(at) AS at
    FROM (SELECT headers::json ->> 'NServiceBus.MessageId' AS message_id,
                 pg_xact_commit_timestamp(xmin) AT TIME ZONE 'UTC' AS at
          FROM ({queues}) q) a
    GROUP BY message_id
), late AS (
    SELECT extract(epoch FROM a.at - e.due)::float8 AS seconds, a.copies
    FROM bench_expected e LEFT JOIN arrived a USING (message_id)
)
SELECT count(*) FILTER (WHERE seconds IS NULL), count(*) FILTER (WHERE copies > 1),
       count(*) FILTER (WHERE seconds < 0),
       percentile_disc(0.5) WITHIN GROUP (ORDER BY seconds),
       percentile_disc(0.99) WITHIN GROUP (ORDER BY seconds), max(seconds)
FROM late
"""


class Arrivals(NamedTuple):
    """The arrived messages: faults, and seconds from Due to the commit of their delivery."""

    faults: Faults
    p50: float
    p99: float
    latest: float

    def figure(self, name: str, note: str = "", cpu: Cpu | None = None) -> Figure:
        """The 99th percentile, and the others."""
        beside = f"p50 {self.p50:.2f} s, latest {self.latest:.1f} s"
        told = "; ".join(filter(None, [beside, note]))
        return Figure(name, (self.p99,), "s, p99", cpu=cpu, faults=self.faults, note=told)


def watch_options(parser: ArgumentParser) -> None:
    """Options of `bench/run watch`."""
    parser.add_argument("--seconds", type=int, default=20, help="of the steady load")
    parser.add_argument("--rate", type=int, default=200, help="messages a second")
    parser.add_argument("--burst", type=int, default=60_000, help="messages due at once")
    parser.add_argument(
        "--dead-rows", type=int, default=0, help="delivered before, which a snapshot still sees"
    )


def watch(options: Namespace, folder: Path) -> list[Figure]:
    """A steady load, a burst, and the loss of one of two watchers."""
    most = Load(max(options.rate * options.seconds, options.burst, options.dead_rows))
    with open_bed(folder, most, track_commit_timestamp="on") as bed:
        file = bed.file
        config_of(file, bed.dsn, str(folder / "ledger"))
        command = [*shell_command(), "watch", "--config", str(file)]
        with _running(command, folder / "first.log") as first:
            figures = [
                _steady(bed, options.seconds, options.rate, first),
                _burst(bed, options.burst),
            ]
            if options.dead_rows:
                figures.append(_under_a_snapshot(bed, options, first))
            with _running(command, folder / "second.log"):
                figures.append(_killed(bed, options.rate, first))
        return figures


@contextmanager
def _running(command: Sequence[str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "lib")}
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, stderr=stderr, env=environment)
        try:
            yield process
        finally:
            # A frozen one continues before it ends, and releases its claims.
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait(120)


def _steady(
    bed: Bed,
    seconds: int,
    rate: int,
    watcher: "subprocess.Popen[bytes]",
    *,
    keeps_rows: bool = False,
) -> Figure:
    _store(bed, rate * seconds, rate, keeps_rows=keeps_rows)
    memory: list[float] = []
    before = _cpu_seconds(watcher.pid)
    end = time.monotonic() + _LEAD_SECONDS + seconds
    while time.monotonic() < end:
        time.sleep(min(_EVERY_SECONDS, max(0.0, end - time.monotonic())))
        memory.append(_memory_mb(watcher.pid))
    cpu = Cpu(python=_cpu_seconds(watcher.pid) - before).for_each(rate * seconds)
    part = max(1, len(memory) // 4)
    quarters = [f"{max(memory[at : at + part]):.0f}" for at in range(0, len(memory), part)]
    note = f"memory by time: {', '.join(quarters)} MB; {_newest_files(bed)} files in the ledger"
    return _arrivals(bed).figure(f"{rate} messages a second for {seconds} s", note, cpu)


def _burst(bed: Bed, rows: int) -> Figure:
    _store(bed, rows, 1e9, lead=0)
    return _arrivals(bed).figure(f"{rows:,} messages at once")


def _under_a_snapshot(bed: Bed, options: Namespace, watcher: "subprocess.Popen[bytes]") -> Figure:
    """A steady load after many deliveries whose rows stay in the table and its index."""
    with psycopg.connect(bed.dsn) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("SELECT FROM pg_class")
        _store(bed, options.dead_rows, 1e9, lead=0)
        _arrivals(bed)
        figure = _steady(bed, options.seconds, options.rate, watcher, keeps_rows=True)
        return replace(figure, name=f"{figure.name}, {options.dead_rows:,} dead rows")


def _killed(bed: Bed, rate: int, first: "subprocess.Popen[bytes]", seconds: int = 10) -> Figure:
    _store(bed, rate * seconds, rate)
    time.sleep(_LEAD_SECONDS + seconds / 2)
    first.send_signal(signal.SIGKILL)
    return _arrivals(bed).figure("one of two watchers killed")


def _store(
    bed: Bed, rows: int, rate: float, lead: float = _LEAD_SECONDS, *, keeps_rows: bool = False
) -> None:
    """Store `rows` messages, which come due one after another, in an empty table; `keeps_rows`: in
    one that keeps its deleted rows.
    """
    # A watcher would deliver any row at once.
    bed.reset(rows=0, keeps_rows=keeps_rows)
    with psycopg.connect(bed.dsn) as connection:
        connection.execute(b"DROP TABLE IF EXISTS bench_expected")
        connection.execute(_STORE.format(delayed=bed.delayed).encode(), (lead, rate, rows))
        connection.execute(_EXPECT.format(delayed=bed.delayed).encode())


def _arrivals(bed: Bed, most_seconds: float = _MOST_SECONDS) -> Arrivals:
    """Wait until the store is empty, and say how late messages arrived."""
    end = time.monotonic() + most_seconds
    queues = " UNION ALL ".join(f"SELECT headers, xmin FROM {q}" for q in bed.queues.values())
    with psycopg.connect(bed.dsn, autocommit=True) as connection:
        while time.monotonic() < end:
            row = connection.execute(f"SELECT count(*) FROM {bed.delayed}".encode()).fetchone()
            if row == (0,):
                break
            time.sleep(0.5)
        row = connection.execute(_ARRIVED.format(queues=queues).encode()).fetchone()
    assert row is not None
    lost, doubled, early, *late = row
    return Arrivals(Faults(lost, doubled, early), *(round(value or 0.0, 3) for value in late))


def _memory_mb(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1_024


def _cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _newest_files(bed: Bed) -> int:
    ledger = Path(bed.config.ledger.root)
    tables = [path for path in ledger.iterdir() if (path / "_delta_log").is_dir()]
    return sum(len(DeltaTable(table).file_uris()) for table in tables)


_SCRIPT = ROOT / "tests" / "support" / "trials" / "sweep_command.py"
POINTS = (
    *("after Sweeps.open", "before Due.plan", "after TaskSession.claim"),
    *(f"{when} COMMIT of TaskSession.transaction" for when in WHEN),
    *("after TaskSession.end_slice", "after Sweeps.close", "after Journal.seal"),
    *(f"{when} LedgerTables.append(tombstones)" for when in WHEN),
    *(f"{when} Journal.delete_settled" for when in WHEN),
)
_WARM_SECONDS, _LATE_SECONDS = 4, 8
# The tick at which a watcher freezes: its first ones settle the rest of the part before.
_OCCURRENCE = 3


def frozen_options(parser: ArgumentParser) -> None:
    """Options of `bench/run frozen`."""
    parser.add_argument("--seconds", type=int, default=20, help="of load for each point")
    parser.add_argument("--rate", type=int, default=100, help="messages a second")
    parser.add_argument("--points", nargs="*", default=POINTS, choices=POINTS, metavar="POINT")


def frozen(options: Namespace, folder: Path) -> list[Figure]:
    """Two watchers serve an endpoint, and one is frozen (SIGSTOP) at a point of its tick: how late
    the other's messages are, how long another sweep takes, and whether the audit at the end
    finds nothing. Its findings count as lost.
    """
    load = Load(options.rate * options.seconds)
    with open_bed(folder, load, track_commit_timestamp="on") as bed:
        return [figure for point in options.points for figure in _frozen_at(point, bed, options)]


def _frozen_at(point: str, bed: Bed, options: Namespace) -> list[Figure]:
    file = bed.file
    meeting = Path(tempfile.mkdtemp(dir=file.parent))
    plan = Plan(str(meeting), point, _OCCURRENCE, FREEZE)

    def watcher(plan: Plan) -> list[str]:
        words = [sys.executable, str(_SCRIPT), "once", plan.text(), "watch"]
        return [*words, "--config", str(file)]

    with ExitStack() as stack:
        stack.enter_context(_running(watcher(Plan(str(meeting))), meeting / "healthy.log"))
        time.sleep(_WARM_SECONDS)
        _store(bed, options.rate * options.seconds, options.rate)
        stack.enter_context(_running(watcher(plan), meeting / "frozen.log"))
        end = time.monotonic() + options.seconds
        while not plan.fired.exists() and time.monotonic() < end:
            time.sleep(0.05)
        has_frozen = plan.fired.exists()
        time.sleep(2)
        began = time.monotonic()
        code = _command(file, "sweep", "--max-seconds", "5")
        swept = round(time.monotonic() - began, 1)
        time.sleep(max(0.0, end + _LATE_SECONDS - time.monotonic()))
        beside = _arrivals(bed, 0)
    _command(file, "sweep")
    last = _arrivals(bed)
    found = Faults(lost=_command(file, "audit"))
    held = f"{beside.faults.lost} held by the frozen one"
    note = held if has_frozen else "it did not freeze"
    say(f"{point}: {note}")
    return [
        beside._replace(faults=last.faults + found).figure(point, note),
        Figure("a sweep at the same time", (swept,), "s", note=f"exit code {code}"),
    ]


def _command(file: Path, *arguments: str) -> int:
    command = [sys.executable, "-m", "duesweep", *arguments, "--config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        print(done.stdout[-2_000:], done.stderr[-2_000:], file=sys.stderr)
    return done.returncode
