"""Sweeps of many sizes and shapes, on one server. See README.md."""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cpu
import figures
from rich.console import Console
from rich.table import Table
from sweeps import WarmSession, sweep_from_shell
from testbed import DATABASE, Count, Load, Testbed, open_server

from duesweep_testing.folder import clear_folder, lock_folder, write_config
from duesweep_testing.traffic import ENDPOINT

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "scale.json"
_QUEUES = [f"Queue{number:04}" for number in range(1_000)]
_WARM_UP = Load(50_000)
_TWENTY_MILLION = Load(20_000_000, body_bytes=0, made_once=True)
_NO_SPARK = ("--set", "sweep.spark_from=100000000")


@dataclass(frozen=True, slots=True)
class Case:
    """What waits, and how many slices there are; 0: as many as cores. `on_spark`: in a warm Spark
    session; False: from the shell without Spark; None: from the shell, as the settings say.
    """

    name: str
    load: Load
    slices: int = 0
    on_spark: bool | None = True


@dataclass(frozen=True, slots=True)
class Result:
    """One sweep. `peak_mb` is that of the command's own process, from the shell only: with Spark,
    that of the driver without its JVM. `journal` is how many messages the journal held at most.
    """

    case: str
    rows: int
    seconds: float
    cpu_us: dict[str, float]
    count: Count
    load: float
    peak_mb: float | None
    journal: int


CASES = (
    Case("20,000 due", Load(20_000)),
    Case("200,000 due", Load(200_000)),
    Case("200,000 due beside 1,000,000 that are paused", Load(200_000, paused=1_000_000)),
    Case("2,000,000 due", Load(2_000_000)),
    Case("100,000 due", Load(100_000)),
    Case("100,000 due beside 5,000,000 that are not", Load(100_000, waiting=5_000_000)),
    Case("200,000 due, 1 slice", Load(200_000), slices=1),
    Case("200,000 due, 2 slices", Load(200_000), slices=2),
    Case("200,000 due, 4 slices", Load(200_000), slices=4),
    Case("200,000 due, all with one Due", Load(200_000, one_due=True)),
    Case("200,000 due, one destination", Load(200_000, _QUEUES[:1])),
    Case("200,000 due, a thousand destinations", Load(200_000, _QUEUES)),
    Case("200,000 due, no bodies", Load(200_000, body_bytes=0)),
    Case("5,000 due, bodies of 100 kB", Load(5_000, body_bytes=100_000)),
    Case("5,000 due, bodies of 1 MB", Load(5_000, body_bytes=1_000_000)),
    Case("5,000 due, bodies of 1 MB, no Spark", Load(5_000, body_bytes=1_000_000), on_spark=False),
    Case("20,000,000 due, no bodies, no Spark", _TWENTY_MILLION, on_spark=False),
    Case("20,000,000 due, no bodies, from the shell", _TWENTY_MILLION, on_spark=None),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases. Returns 1 if a message was lost, doubled or early."""
    parser = argparse.ArgumentParser(prog="bench/run scale", description=__doc__)
    parser.add_argument("--only", default="", help="of the cases, those with this in the name")
    parser.add_argument("--rounds", type=int, default=1, help="how often each case runs")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench")
    parser.add_argument("--dsn", help=f"of a database {DATABASE} elsewhere; it is emptied")
    parser.add_argument("--ledger", help="a root for the ledger that a cluster can reach")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    folder: Path = options.folder.absolute()
    with lock_folder(folder):
        clear_folder(folder)
        try:
            results = _run_all(options, folder)
        finally:
            clear_folder(folder)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps([asdict(one) for one in results], indent=1) + "\n")
    _show(results)
    return 0 if all(one.count.is_clean for one in results) else 1


def _run_all(options: argparse.Namespace, folder: Path) -> list[Result]:
    session = WarmSession()
    with open_server(folder, options.dsn) as dsn:
        runner = _Runner(dsn, options.ledger or str(folder / "ledger"), folder, session)
        runner.run(Case("warm-up", _WARM_UP), 1)
        cases = [case for case in CASES if options.only in case.name]
        if not cases:
            sys.exit(f"No case has {options.only!r} in its name")
        # Without Spark the ledger has to be a local folder.
        cases = [case for case in cases if case.on_spark or not options.ledger]
        return [result for case in cases for result in runner.run(case, options.rounds)]


class _Runner:
    """Runs cases on one server, in one Spark session."""

    def __init__(self, dsn: str, ledger: str, folder: Path, session: WarmSession) -> None:
        self._dsn = dsn
        self._ledger = ledger
        self._folder = folder
        self._session = session

    def run(self, case: Case, rounds: int) -> list[Result]:
        """Run a case so often."""
        file = self._folder / "duesweep.toml"
        settings: dict[str, dict[str, Any]] = {
            "store": {"kind": "postgresql", "dsn": self._dsn, "endpoint": ENDPOINT},
            "ledger": {"root": self._ledger},
            "sweep": {"slices": case.slices},
        }
        config = write_config(file, settings, "Written by bench/run.")
        testbed = Testbed(config, case.load)
        testbed.prepare()
        results = []
        for _ in range(rounds):
            testbed.reset()
            load, peak_mb = os.getloadavg()[0], None
            before, started = cpu.measure(testbed.server_pid), time.monotonic()
            with testbed.watching_journal() as most_held:
                if case.on_spark:
                    self._session.sweep(config)
                else:
                    options = () if case.on_spark is None else _NO_SPARK
                    peak_mb = sweep_from_shell(file, *options).peak_mb
            seconds = time.monotonic() - started
            used = cpu.measure(testbed.server_pid) - before
            each = {kind: getattr(used, kind) / testbed.rows * 1e6 for kind in figures.KINDS}
            count = testbed.count(is_first_hop=False)
            if testbed.waiting() != case.load.left:
                raise RuntimeError(f"{testbed.waiting()} of {case.load.left} wait")
            results.append(
                Result(case.name, testbed.rows, seconds, each, count, load, peak_mb, max(most_held))
            )
            print(f"{case.name}: {seconds:.1f} s", file=sys.stderr, flush=True)
        return results


def _show(results: Sequence[Result]) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 150
    table = Table("case")
    for name in (
        "seconds",
        "rows/s",
        "µs of CPU a row: server, Python, JVM = all",
        "peak",
        "journal",
    ):
        table.add_column(name, justify="right")
    table.add_column("lost, doubled, early", justify="right")
    for one in results:
        *parts, total = (f"{one.cpu_us[kind]:.0f}" for kind in figures.KINDS)
        table.add_row(
            one.case,
            f"{one.seconds:.1f}",
            f"{one.rows / one.seconds:,.0f}",
            f"{', '.join(parts)} = {total}",
            "" if one.peak_mb is None else f"{one.peak_mb:.0f} MB",
            f"{one.journal:,}",
            f"{one.count.lost}, {one.count.doubled}, {one.count.early}",
        )
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
