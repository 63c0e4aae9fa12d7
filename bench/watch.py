"""`duesweep watch`: lateness under a steady load, a burst, and the loss of one of two watchers."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from testbed import Load, Testbed

from duesweep_testing.folder import clear_folder, lock_folder, write_config
from duesweep_testing.server import EmbeddedServer
from duesweep_testing.traffic import ENDPOINT

ROOT = Path(__file__).resolve().parent.parent
_EVERY_SECONDS = 10
# Messages wait for so long before the first of them is due, and after the last one at most.
_LEAD_SECONDS, _MOST_SECONDS = 3, 300
_STORE = """
INSERT INTO {delayed} (id, headers, body, due)
SELECT id, headers, body,
       (now() AT TIME ZONE 'UTC') + make_interval(secs => %s + n / %s::float8)
FROM (SELECT *, row_number() OVER () AS n FROM bench_pristine LIMIT %s) p
"""
# What is due is told to everybody, in the order in which it is due.
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the three parts. Returns 1 if a message was lost, doubled or early."""
    parser = argparse.ArgumentParser(prog="bench/run watch", description=__doc__)
    parser.add_argument("--seconds", type=int, default=600, help="of the steady load")
    parser.add_argument("--rate", type=int, default=200, help="messages a second")
    parser.add_argument("--burst", type=int, default=200_000, help="messages due at once")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench")
    options = parser.parse_args(arguments)
    folder: Path = options.folder.absolute()
    with lock_folder(folder):
        clear_folder(folder)
        try:
            figures = _run(options, folder)
        finally:
            clear_folder(folder)
    print(json.dumps(figures, indent=2))
    parts = [part for part in figures.values() if "lost" in part]
    return int(any(part["lost"] or part["doubled"] or part["early"] for part in parts))


def _run(options: argparse.Namespace, folder: Path) -> dict[str, dict[str, Any]]:
    with EmbeddedServer(folder, timezone="UTC", track_commit_timestamp="on") as server:
        settings = {
            "store": {"kind": "postgresql", "dsn": server.dsn, "endpoint": ENDPOINT},
            # So that the messages that are due at once start Spark.
            "sweep": {"spark_from": 50_000},
            "ledger": {"root": str(folder / "ledger")},
        }
        file = folder / "duesweep.toml"
        config = write_config(file, settings, "Written by bench/run.")
        most = max(options.rate * options.seconds, options.burst)
        testbed = Testbed(config, Load(most))
        testbed.prepare()
        figures = {}
        with _watcher(file, folder / "first.log") as first:
            figures["steady"] = _steady(testbed, options, first, folder / "ledger")
            figures["burst"] = _burst(testbed, options.burst, folder / "first.log")
            with _watcher(file, folder / "second.log"):
                figures["one of two killed"] = _killed(testbed, options.rate, first)
        return figures


@contextmanager
def _watcher(file: Path, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "duesweep", "watch", "--config", str(file)]
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, stderr=stderr)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(120)


def _steady(
    testbed: Testbed, options: argparse.Namespace, watcher: "subprocess.Popen[bytes]", ledger: Path
) -> dict[str, Any]:
    store(testbed, options.rate * options.seconds, options.rate)
    memory, files = [], []
    end = time.monotonic() + _LEAD_SECONDS + options.seconds
    while time.monotonic() < end:
        time.sleep(_EVERY_SECONDS)
        memory.append(_memory_mb(watcher.pid))
        files.append(sum(path.suffix == ".parquet" for path in ledger.rglob("*")))
    figures = arrivals(testbed)
    part = max(1, len(memory) // 4)
    return figures | {
        "memory_mb_by_quarter": [max(memory[i * part : (i + 1) * part]) for i in range(4)],
        "ledger_files_newest": _newest_files(ledger),
        "ledger_files_on_disk": files[-1],
        "cpu_seconds": round(_cpu(watcher.pid), 1),
    }


def _burst(testbed: Testbed, rows: int, log: Path) -> dict[str, Any]:
    store(testbed, rows, 1e9, lead=0)
    begin = time.monotonic()
    figures = arrivals(testbed)
    took = time.monotonic() - begin
    end = time.monotonic() + _MOST_SECONDS
    while "spark_ended" not in log.read_text() and time.monotonic() < end:
        time.sleep(1)
    events = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    told = [each["event"] for each in events if each["event"].startswith("spark")]
    return figures | {"seconds": round(took, 1), "spark": told}


def _killed(
    testbed: Testbed, rate: int, first: "subprocess.Popen[bytes]", seconds: int = 20
) -> dict[str, Any]:
    store(testbed, rate * seconds, rate)
    time.sleep(_LEAD_SECONDS + seconds / 2)
    first.send_signal(signal.SIGKILL)
    return arrivals(testbed)


def store(testbed: Testbed, rows: int, rate: float, lead: float = _LEAD_SECONDS) -> None:
    """Store so many messages, which come due one after another."""
    testbed.reset(rows=1)
    with psycopg.connect(testbed.dsn) as connection:
        connection.execute(f"TRUNCATE {testbed.delayed}".encode())
        connection.execute(b"DROP TABLE IF EXISTS bench_expected")
        text = _STORE.format(delayed=testbed.delayed)
        connection.execute(text.encode(), (lead, rate, rows))
        connection.execute(_EXPECT.format(delayed=testbed.delayed).encode())


def arrivals(testbed: Testbed, most_seconds: float = _MOST_SECONDS) -> dict[str, Any]:
    """Wait until the store is empty, and say how late messages arrived."""
    end = time.monotonic() + most_seconds
    queues = " UNION ALL ".join(f"SELECT headers, xmin FROM {q}" for q in testbed.queues.values())
    with psycopg.connect(testbed.dsn, autocommit=True) as connection:
        while time.monotonic() < end:
            row = connection.execute(f"SELECT count(*) FROM {testbed.delayed}".encode()).fetchone()
            if row == (0,):
                break
            time.sleep(0.5)
        row = connection.execute(_ARRIVED.format(queues=queues).encode()).fetchone()
    assert row is not None
    names = ("lost", "doubled", "early", "p50_seconds", "p99_seconds", "max_seconds")
    return dict(
        zip(names, (*row[:3], *(value and round(value, 3) for value in row[3:])), strict=True)
    )


def _memory_mb(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return round(int(line.split()[1]) / 1_024, 1)


def _cpu(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _newest_files(ledger: Path) -> int:
    from deltalake import DeltaTable  # noqa: PLC0415 - slow

    tables = [path for path in ledger.iterdir() if (path / "_delta_log").is_dir()]
    return sum(len(DeltaTable(table).file_uris()) for table in tables)


if __name__ == "__main__":
    sys.exit(main())
