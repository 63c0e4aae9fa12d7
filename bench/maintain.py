"""What `duesweep maintain` does to a ledger of many small ticks, by either writer."""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from testbed import Load, Testbed
from ticks import make_due

from duesweep.config import Config
from duesweep.config.adapters.endpoint import sweep_context
from duesweep.operations.maintain import maintain
from duesweep.operations.opening import opened_engine
from duesweep.sweep.sweep import Engine, sweep
from duesweep_testing.folder import clear_folder, lock_folder, write_config
from duesweep_testing.server import EmbeddedServer
from duesweep_testing.traffic import ENDPOINT

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "maintain.json"
WRITERS = ("delta-rs", "spark")
_TIMED_TICKS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the ticks, and let each writer maintain a copy of the ledger."""
    parser = argparse.ArgumentParser(prog="bench/run maintain", description=__doc__)
    parser.add_argument("--ticks", type=int, default=2_000)
    parser.add_argument("--written-by", choices=WRITERS, default="delta-rs")
    parser.add_argument("--rows", type=int, default=10, help="due messages for each tick")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    folder: Path = options.folder.absolute()
    with lock_folder(folder):
        clear_folder(folder)
        try:
            figures = _run(options, folder)
        finally:
            clear_folder(folder)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures, indent=2))
    return 0


def _run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    with EmbeddedServer(folder, timezone="UTC") as server:

        def config_of(writer: str, ledger: Path, **settings: object) -> Config:
            content = {
                "store": {"kind": "postgresql", "dsn": server.dsn, "endpoint": ENDPOINT},
                "ledger": {"root": str(ledger), "writer": writer, **settings},
            }
            return write_config(folder / "duesweep.toml", content, "Written by bench/run.")

        first = config_of(options.written_by, folder / "ledger")
        testbed = Testbed(first, Load(options.rows))
        testbed.prepare()
        made = _ticks(first, testbed, options.ticks)
        figures: dict[str, Any] = {"ticks": len(made), "seconds": round(median(made), 3)}
        for writer in WRITERS:
            ledger = folder / f"ledger-{writer}"
            shutil.copytree(folder / "ledger", ledger)
            config = config_of(writer, ledger)
            shown = {"start": _disk(ledger), "tick_before": _tick(config, testbed)}
            shown |= _maintained(config, ledger)
            shown["tick_after"] = _tick(config, testbed)
            # What the same does to files that are a week old.
            shown["a week later"] = _maintained(config_of(writer, ledger, vacuum_days=0), ledger)
            figures[writer] = shown
        return figures


def _ticks(config: Config, testbed: Testbed, count: int) -> list[float]:
    """The seconds of so many sweeps in this process, with the config's writer of the ledger."""
    context = sweep_context(config)
    with opened_engine(context, on_spark=config.ledger.writer == "spark") as engine:
        return [_seconds_of_tick(engine, context, testbed) for _ in range(count)]


def _seconds_of_tick(engine: Engine, context: Any, testbed: Testbed) -> float:
    make_due(testbed)
    started = time.monotonic()
    sweep(engine, context)
    return time.monotonic() - started


def _tick(config: Config, testbed: Testbed) -> float:
    """The median of a few ticks; the first ones warm up."""
    return round(median(_ticks(config, testbed, 2 * _TIMED_TICKS)[_TIMED_TICKS:]), 3)


def _maintained(config: Config, ledger: Path) -> dict[str, Any]:
    started = time.monotonic()
    report = maintain(config)
    seconds = round(time.monotonic() - started, 1)
    data = {one.name: (one.before.files, one.after.files) for one in report.tables}
    return {"maintain_seconds": seconds, "data_files": data, "end": _disk(ledger)}


def _disk(ledger: Path) -> dict[str, int]:
    files = [path for path in ledger.rglob("*") if path.is_file()]
    return {"files": len(files), "bytes": sum(path.stat().st_size for path in files)}


if __name__ == "__main__":
    sys.exit(main())
