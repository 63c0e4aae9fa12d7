"""Small sweeps from the shell, one after another, without Java. See README.md."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

import psycopg
from sweeps import ShellRun, sweep_from_shell
from testbed import Load, Testbed

from duesweep_testing.folder import clear_folder, lock_folder, write_config
from duesweep_testing.server import EmbeddedServer
from duesweep_testing.traffic import ENDPOINT

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "ticks.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the ticks. Returns 1 if a message was lost or doubled."""
    parser = argparse.ArgumentParser(prog="bench/run ticks", description=__doc__)
    parser.add_argument("--ticks", type=int, default=1_000)
    parser.add_argument("--rows", type=int, default=100, help="due messages for each tick")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    folder: Path = options.folder.absolute()
    with lock_folder(folder):
        clear_folder(folder)
        try:
            return _run(options, folder)
        finally:
            clear_folder(folder)


def _run(options: argparse.Namespace, folder: Path) -> int:
    with EmbeddedServer(folder, timezone="UTC") as server:
        settings = {
            "store": {"kind": "postgresql", "dsn": server.dsn, "endpoint": ENDPOINT},
            "ledger": {"root": str(folder / "ledger")},
        }
        file = folder / "duesweep.toml"
        config = write_config(file, settings, "Written by bench/run.")
        testbed = Testbed(config, Load(options.rows))
        testbed.prepare()
        ticks = []
        for _ in range(options.ticks):
            make_due(testbed)
            ticks.append(sweep_from_shell(file, JAVA_HOME="/nonexistent"))
        sent = _count_sent(testbed)
        figures = _figures(ticks) | _ledger_files(folder / "ledger")
    figures |= {"sent": sent, "expected": options.ticks * options.rows}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(
        json.dumps(figures | {"ticks": [asdict(tick) for tick in ticks]}, indent=1) + "\n"
    )
    print(json.dumps(figures, indent=2))
    return 0 if sent == figures["expected"] else 1


def make_due(testbed: Testbed) -> None:
    """Add the rows that are due to the delayed table, under new ids."""
    with psycopg.connect(testbed.dsn, autocommit=True) as connection:
        connection.execute(
            f"INSERT INTO {testbed.delayed} (headers, body, due)"
            " SELECT headers, body, due FROM bench_pristine WHERE is_due".encode()
        )


def _count_sent(testbed: Testbed) -> int:
    union = " UNION ALL ".join(f"SELECT id FROM {queue}" for queue in testbed.queues.values())
    with psycopg.connect(testbed.dsn) as connection:
        row = connection.execute(f"SELECT count(DISTINCT id) FROM ({union}) q".encode()).fetchone()
    return int(row[0]) if row else 0


def _figures(ticks: Sequence[ShellRun]) -> dict[str, float]:
    part = min(100, max(1, len(ticks) // 10))
    first = median(tick.seconds for tick in ticks[:part])
    last = median(tick.seconds for tick in ticks[-part:])
    return {
        "ticks": len(ticks),
        "seconds": round(median(tick.seconds for tick in ticks), 3),
        "seconds_slowest": max(tick.seconds for tick in ticks),
        "cpu_seconds": round(median(tick.cpu for tick in ticks), 3),
        "peak_mb": max(tick.peak_mb for tick in ticks),
        "last_to_first": round(last / first, 3),
    }


def _ledger_files(root: Path) -> dict[str, float]:
    """How many files of data each table's newest version has, and how many files there are."""
    from deltalake import DeltaTable  # noqa: PLC0415 - slow

    tables = [path.name for path in root.iterdir() if path.is_dir()]
    return {f"{name}_files": len(DeltaTable(root / name).file_uris()) for name in tables} | {
        "files_on_disk": sum(path.is_file() for path in root.rglob("*"))
    }


if __name__ == "__main__":
    sys.exit(main())
