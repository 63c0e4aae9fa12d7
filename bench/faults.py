"""Runs seeded trials, and writes the results into docs/reliability.md and proof/trials.md.

Each seed is printed with its result, and `--seed N --runs 1` runs it again. Exits with 1 if
anything was lost or early, doubled beyond the bound, or not true.
"""

import argparse
import multiprocessing
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

from support import pooler
from support.rabbitmq.broker_server import installed
from support.trials.conduct import Result, run_trial
from support.trials.faults import CLOCKS, FAULTS, LEDGER_HARMS, SPARK
from support.trials.services import SQL_SERVER_VARIABLE, Services, can_mount, faketime
from support.trials.table import places_table, points_table, summary, table
from support.trials.trial import Trial, draw
from support.trials.world import BROKER, PLACES, POOLED, SQL_SERVER

_ROOT = Path(__file__).parents[1]
_PAGE = _ROOT / "docs" / "reliability.md"
_TABLES = _ROOT / "proof" / "trials.md"
_BEGIN, _END = "<!-- trials: begin -->\n", "<!-- trials: end -->\n"
_JOB_SECONDS = 600


def main() -> int:
    """Run them. Returns the exit code."""
    options = _options()
    # The trials' drivers start sessions of their own.
    os.environ.setdefault("DUESWEEP_JARS", str(_ROOT / ".cache" / "jars"))
    trials = _draw(options)
    print(f"{len(trials)} trials in {options.jobs} jobs", flush=True)
    started = time.monotonic()
    results, failures = _run_all(trials, options.jobs)
    seconds = time.monotonic() - started
    bad = [result for result in results if not result.is_good]
    print(f"\n{_tables(results)}")
    print(f"{len(results)} trials in {seconds / 60:.1f} minutes, {len(bad)} of them bad")
    for seed in sorted([result.trial.seed for result in bad] + failures):
        print(f"again: bench/faults --seed {seed} --runs 1")
    if len(results) >= len(FAULTS) and not (options.only or options.place):
        _write(results, options, seconds)
    return 1 if bad or failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/faults", description=__doc__)
    parser.add_argument("--runs", type=int, default=300, help="how many trials")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first")
    parser.add_argument("--place", metavar="TEXT", help="in the places whose name has this text")
    parser.add_argument("--only", metavar="TEXT", help="trials whose description has this text")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once")
    return parser.parse_args()


def _draw(options: argparse.Namespace) -> Sequence[Trial]:
    places = [place for place in PLACES if _is_possible(place) and (options.place or "") in place]
    if not places:
        sys.exit(f"no place of a trial is called {options.place}, or its server is not there")
    seeds = range(options.seed, options.seed + options.runs)
    drawn = [draw(seed, places) for seed in seeds]
    found = [trial for trial in drawn if options.only is None or options.only in str(trial)]
    # Those on Spark one after the other: a session serves many of them.
    return sorted(filter(_can_run, found), key=lambda trial: (trial.engine == SPARK, trial.seed))


def _is_possible(place: str) -> bool:
    if place == POOLED:
        return pooler.installed() is not None
    if place == SQL_SERVER:
        return bool(os.environ.get(SQL_SERVER_VARIABLE))
    return place != BROKER or installed() is not None


def _can_run(trial: Trial) -> bool:
    lacks = None
    if trial.fault.harm in CLOCKS and faketime() is None:
        lacks = "libfaketime"
    if trial.fault.harm in LEDGER_HARMS and not can_mount():
        lacks = "the right to mount a disk"
    if lacks is not None:
        print(f"{trial}: not run, {lacks} is missing")
    return lacks is None


def _run_all(trials: Sequence[Trial], jobs: int) -> tuple[list[Result], list[int]]:
    """The results, and the seeds of trials that could not be run to their end."""
    context = multiprocessing.get_context("spawn")
    tasks: Queue[Trial | None] = context.Queue()
    done: Queue[tuple[Trial, Result | str]] = context.Queue()
    for trial in [*trials, *[None] * jobs]:
        tasks.put(trial)
    processes = [context.Process(target=_job, args=(tasks, done)) for _ in range(jobs)]
    for process in processes:
        process.start()
    results: list[Result] = []
    failures: list[int] = []
    for _ in trials:
        trial, result = done.get(timeout=_JOB_SECONDS)
        if isinstance(result, Result):
            results.append(result)
        else:
            failures.append(trial.seed)
        print(_line(trial, result), flush=True)
    for process in processes:
        process.join()
    return results, failures


def _line(trial: Trial, result: Result | str) -> str:
    if isinstance(result, str):
        return f"FAILED {trial}\n{result}"
    verdict = result.verdict
    recovered = result.recovery_seconds
    told = (
        f"{'ok    ' if result.is_good else 'BAD   '} {trial}: lost {verdict.lost}, doubled "
        f"{verdict.doubled} of {result.bound}, codes {list(result.codes)}, "
        f"recovered in {-1 if recovered is None else recovered:.1f} s of {result.seconds:.1f} s"
    )
    problems = [] if result.is_good else [*verdict.untrue, *result.problems]
    return "\n  ".join([told, *problems])


def _job(tasks: "Queue[Trial | None]", done: "Queue[tuple[Trial, Result | str]]") -> None:
    """Run trials with servers of this job's own; new ones after a trial that failed."""
    while True:
        with tempfile.TemporaryDirectory(prefix="duesweep-trials-") as folder:
            # As root PostgreSQL runs under a user of its own, who must get in.
            Path(folder).chmod(0o755)
            with Services(Path(folder)) as services:
                if _run_until_failure(services, tasks, done):
                    return


def _run_until_failure(services: Services, tasks: Any, done: Any) -> bool:
    """Run trials; whether there are no more."""
    while (trial := tasks.get()) is not None:
        try:
            done.put((trial, run_trial(trial, services)))
        except Exception:  # noqa: BLE001 - whatever it is, the other trials continue
            done.put((trial, traceback.format_exc()))
            return False
    return True


def _tables(results: Sequence[Result]) -> str:
    fired = [point for result in results for point in result.fired]
    return "\n".join(
        [
            table(results),
            "## By place\n",
            places_table(results),
            "## By crash point\n\nHow many trials met their fault before and after each method.\n",
            points_table(fired),
        ]
    )


def _write(results: Sequence[Result], options: argparse.Namespace, seconds: float) -> None:
    command = f"bench/faults --runs {options.runs} --seed {options.seed} --jobs {options.jobs}"
    versions = ", ".join(
        f"{name} {version(package)}"
        for name, package in {
            "PySpark": "pyspark", "deltalake": "deltalake",
            "psycopg": "psycopg", "pika": "pika",
        }.items()
    )  # fmt: skip
    head, _, _ = _TABLES.read_text("utf-8").partition("Made by ")
    _TABLES.write_text(
        f"{head}Made by `{command}` in {seconds / 60:.0f} minutes on {os.cpu_count()} cores "
        f"({platform.system()},\nPython {platform.python_version()}, {versions}).\n\n"
        f"{_tables(results)}",
        "utf-8",
    )
    before, _, rest = _PAGE.read_text("utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    _PAGE.write_text(
        f"{before}{_BEGIN}\n{summary(results, seconds)}\n{_END}{after}",
        "utf-8",
    )


if __name__ == "__main__":
    sys.exit(main())
