"""Compares duesweep with its peers, in turns, on one server with the same rows. See README.md."""

import argparse
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cpu
import figures
from figures import DEADLOCKS, Run
from mover import move, move_at_once, receive_all
from plain_loop import plain_loop
from sweeps import WarmSession, sweep_cold, sweep_in_process
from testbed import DATABASE, Load, Testbed, open_server

from duesweep.config import Config
from duesweep_testing.folder import clear_folder, lock_folder, write_config
from duesweep_testing.traffic import ENDPOINT

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "latest.json"
MOVER, PLAIN = "NServiceBus, first hop", "two plain processes"
TWO_MOVERS, FOUR_MOVERS = "two of its movers", "four of its movers"
TWO_HOPS = "NServiceBus, both hops"
WARM, COLD, IN_PROCESS = "duesweep, warm", "duesweep, cold", "duesweep, in process"
TWO_SWEEPS = "two sweeps, in process"
_WARM_UP_ROWS = 50_000
_DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}

# The measured action. It returns what it knows: the seconds of its steps, or its deadlocks.
Measured = Callable[[], dict[str, float]]


@dataclass(frozen=True, slots=True)
class Contender:
    """One of the programs to compare. `prepare` is not measured; the action that it returns is."""

    name: str
    prepare: Callable[[], Measured]
    is_first_hop: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all contenders. Returns 1 if a message was lost, doubled or early."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder: Path = options.folder.absolute()
    durability = _DURABLE if options.durable else {}
    with lock_folder(folder):
        clear_folder(folder)
        try:
            with open_server(folder, options.dsn, **durability) as dsn:
                runs = _compare(options, folder, dsn)
        finally:
            clear_folder(folder)
    return 0 if all(run.count.is_clean for run in runs) else 1


def _compare(options: argparse.Namespace, folder: Path, dsn: str) -> list[Run]:
    file = folder / "duesweep.toml"
    settings = {
        "store": {"kind": "postgresql", "dsn": dsn, "endpoint": ENDPOINT},
        "ledger": {"root": options.ledger or str(folder / "ledger")},
    }
    config = write_config(file, settings, "Written by bench/run.")
    testbed = Testbed(config, Load(options.rows))
    _say(f"loading {options.rows:,} due rows")
    testbed.prepare()
    _say("starting and warming a Spark session")
    session = WarmSession()
    testbed.reset(_WARM_UP_ROWS)
    session.sweep(config)
    contenders = [
        contender
        for contender in _contenders(testbed, session, config, file)
        if contender.name == MOVER or options.only in contender.name
        # These need a ledger in a local folder.
        if not (options.ledger and contender.name in {IN_PROCESS, TWO_SWEEPS})
    ]
    runs: list[Run] = []
    for number in range(options.rounds):
        for contender in _rotate(contenders, number):
            if contender.name != COLD or number < options.cold_rounds:
                runs.append(_run(testbed, contender, number + 1))
    machine = _machine(testbed, session)
    figures.write(options.output, machine, runs, MOVER)
    figures.show(machine, runs, MOVER)
    return runs


def _contenders(
    testbed: Testbed, session: WarmSession, config: Config, file: Path
) -> list[Contender]:
    def cold() -> None:
        sweep_cold(file, file.parent / "cold.log")

    def mover() -> Measured:
        return _without_steps(lambda: move(testbed.dsn, testbed.delayed, testbed.own_queue))

    def plain() -> Measured:
        return _without_steps(
            plain_loop(testbed.dsn, testbed.delayed, testbed.queues, testbed.rows).run
        )

    def two_hops() -> Measured:
        def both() -> None:
            move(testbed.dsn, testbed.delayed, testbed.own_queue)
            receive_all(testbed.dsn, testbed.own_queue, testbed.queues)

        return _without_steps(both)

    def movers(at_once: int) -> Measured:
        def move_all() -> dict[str, float]:
            tables = testbed.delayed, testbed.own_queue
            return {DEADLOCKS: move_at_once(at_once, testbed.dsn, *tables)}

        return move_all

    return [
        Contender(MOVER, mover, is_first_hop=True),
        Contender(TWO_MOVERS, lambda: movers(2), is_first_hop=True),
        Contender(FOUR_MOVERS, lambda: movers(4), is_first_hop=True),
        Contender(TWO_HOPS, two_hops),
        Contender(PLAIN, plain),
        Contender(WARM, lambda: lambda: session.sweep(config)),
        Contender(IN_PROCESS, lambda: _without_steps(lambda: sweep_in_process(file))),
        Contender(TWO_SWEEPS, lambda: _without_steps(lambda: sweep_in_process(file, at_once=2))),
        Contender(COLD, lambda: _without_steps(cold)),
    ]


def _without_steps(action: Callable[[], None]) -> Measured:
    def measured() -> dict[str, float]:
        action()
        return {}

    return measured


def _rotate(contenders: Sequence[Contender], number: int) -> list[Contender]:
    # Each round starts with another contender, so that the order has no influence.
    start = number % len(contenders)
    return [*contenders[start:], *contenders[:start]]


def _run(testbed: Testbed, contender: Contender, number: int) -> Run:
    testbed.reset()
    measured = contender.prepare()
    load = os.getloadavg()[0]
    with_jvm = contender.name == WARM
    before = cpu.measure(testbed.server_pid, with_jvm=with_jvm)
    started = time.monotonic()
    steps = measured()
    seconds = time.monotonic() - started
    used = cpu.measure(testbed.server_pid, with_jvm=with_jvm) - before
    count = testbed.count(is_first_hop=contender.is_first_hop)
    run = Run(contender.name, number, round(seconds, 3), testbed.rows, count, load, used, steps)
    _say(
        f"round {number}: {contender.name}: {seconds:.1f} s, {run.rows_per_second:,.0f} rows/s"
        + ("" if count.is_clean else f" {count}")
    )
    return run


def _machine(testbed: Testbed, session: WarmSession) -> dict[str, Any]:
    return {
        "rows": testbed.rows,
        "row_bytes": testbed.row_bytes(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "spark": session.spark_version,
        **{f"postgresql {name}": value for name, value in testbed.settings().items()},
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run", description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="how many due rows")
    parser.add_argument("--rounds", type=int, default=3, help="how often each contender runs")
    parser.add_argument("--only", default="", help="of the contenders, those with this in the name")
    parser.add_argument("--quick", action="store_true", help="one cold start only")
    parser.add_argument(
        "--durable", action="store_true", help="switch fsync and similar settings on"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=ROOT / "build" / "bench",
        help="folder for the server's data",
    )
    parser.add_argument("--dsn", help=f"of a database {DATABASE} elsewhere; it is emptied")
    parser.add_argument("--ledger", help="a root for the ledger that a cluster can reach")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    options.cold_rounds = 1 if options.quick else options.rounds
    return options


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
