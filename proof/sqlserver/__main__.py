"""Asks SQL Server everything on which duesweep relies, and writes the answers into one file.

It starts SQL Server in containers (docker or podman; by that you accept Microsoft's licence for
it), or asks the server of --dsn or DUESWEEP_TEST_SQLSERVER, in databases of its own. All versions
get the facts (proof/sqlserver/facts) and sweeps over a large table; the last version also the
benchmark, trials with faults, and the tests that are marked `sqlserver`, in the remaining time.
Exits with 1 if anything is not as expected or broke off, and with 2 if there is no server to ask.
"""

import argparse
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from duesweep import __version__
from duesweep.core.errors import OdbcDriverError
from duesweep.drivers.sqlserver.dsn import odbc
from proof.sqlserver.commands import ROOT, run_benchmark, run_tests, run_trials
from proof.sqlserver.evidence import Answer, Evidence
from proof.sqlserver.facts import ask, read_facts
from proof.sqlserver.plans import ask_plans
from proof.sqlserver.servers import (
    NoServerError,
    await_session,
    container,
    describe,
    find_engine,
    image_of,
    pull,
)
from support.sqlserver_database import closing, connect, new_database

VARIABLE = "DUESWEEP_TEST_SQLSERVER"
VERSIONS = ("2019", "2025", "2022")
PARTS = ("facts", "plans", "benchmark", "trials", "tests")
_VERSIONED = "READ_COMMITTED_SNAPSHOT ON"
# The databases that users have.
OPTIONS: Mapping[str, Sequence[str]] = {
    "row versions": (_VERSIONED,),
    "no row versions": ("READ_COMMITTED_SNAPSHOT OFF",),
    "case-sensitive": ("COLLATE Latin1_General_CS_AS", _VERSIONED),
    "Turkish": ("COLLATE Turkish_CI_AS", _VERSIONED),
    "level 130": ("COMPATIBILITY_LEVEL = 130", _VERSIONED),
}
# A server that stands in for SQL Server has no options.
_AS_IT_IS: Mapping[str, Sequence[str]] = {"as it is": ()}
_CONTRACT = "tests/contract/stores/test_sqlserver_store_contract.py"
_MARKED = ("tests", "-m", "sqlserver and not long", "-n", "3", "--dist", "loadgroup")
_NO_SERVER = 2

Opened = Callable[[], AbstractContextManager[str]]


def main(arguments: Sequence[str]) -> int:
    """Ask, and write the file. Returns the exit code."""
    options = _options(arguments)
    try:
        odbc()
        servers = _servers(options)
    except (NoServerError, OdbcDriverError) as error:
        print(
            f"There is no SQL Server to ask: {error}. Start docker or podman, or name a server with"
            f" --dsn or {VARIABLE}.",
            file=sys.stderr,
        )
        return _NO_SERVER
    # As an interruption, after which the file is written.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run = _Run(options, Evidence(_made_by(arguments, options.dsn)), time.monotonic())
    try:
        for name, opened in servers.items():
            run.ask_server(name, opened, is_last=name == list(servers)[-1])
    except KeyboardInterrupt:
        run.evidence.broken_off.append("interrupted")
    finally:
        run.write()
        _say(f"written: {options.file}")
    return 0 if run.evidence.is_good else 1


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/prove sqlserver", description=__doc__)
    parser.add_argument("--dsn", default=os.environ.get(VARIABLE), help=f"by default ${VARIABLE}")
    parser.add_argument("--versions", nargs="+", default=VERSIONS, help="of the containers")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--file", type=Path, default=ROOT / "build" / "sqlserver.md")
    parser.add_argument("--minutes", type=float, default=30, help="for everything but downloads")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the large delayed table")
    parser.add_argument("--ticks", type=int, default=100, help="sweeps over it")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--benchmark-rows", type=int, default=50_000)
    return parser.parse_args(arguments)


def _servers(options: argparse.Namespace) -> Mapping[str, Opened]:
    """What opens each server, by its name."""
    if options.dsn:
        return {"server": lambda: nullcontext(options.dsn)}
    engine = find_engine()
    images = {version: image_of(version) for version in options.versions}
    for image in images.values():
        _say(f"fetching {image}")
        pull(engine, image)
    return {version: partial(container, engine, image) for version, image in images.items()}


@dataclass(frozen=True, slots=True)
class _Database:
    """The server on which databases are created, and their options."""

    dsn: str
    options: Sequence[str]
    stand_in: str | None


@dataclass(slots=True)
class _Run:
    """A run: its options, its findings, and when it began."""

    options: argparse.Namespace
    evidence: Evidence
    started: float

    @property
    def seconds_left(self) -> float:
        minutes: float = self.options.minutes
        return self.started + minutes * 60 - time.monotonic()

    def write(self) -> None:
        file: Path = self.options.file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.evidence.text(), "utf-8")

    def ask_server(self, name: str, opened: Opened, *, is_last: bool) -> None:
        """All parts of one server. A server that cannot be had has none."""
        try:
            with opened() as dsn:
                await_session(dsn)
                described, stand_in = describe(dsn)
                self.evidence.servers.append((name, described))
                for where, part, work in self._parts(name, dsn, stand_in, is_last=is_last):
                    self._attempt(where, part, work)
        except (NoServerError, odbc().Error) as error:
            self.evidence.broken_off.append(f"{name}, start: {error}")

    def _attempt(self, where: str, part: str, work: Callable[[], None]) -> None:
        """A part that breaks off ends alone, and is named."""
        if part not in self.options.parts:
            return
        _say(f"{where}: {part}, {self.seconds_left / 60:.0f} minutes left")
        try:
            if self.seconds_left <= 0:
                raise TimeoutError("no time was left")
            work()
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are asked
            self.evidence.broken_off.append(f"{where}, {part}: {type(error).__name__}: {error}")
        # A run that is killed leaves its findings.
        self.write()

    def _ask_facts(self, where: str, kind: str, database: _Database) -> None:
        """Each fact, in one database."""
        name = f"duesweep_prove_{os.getpid()}"
        with (
            closing(connect(database.dsn)) as master,
            new_database(
                database.dsn, master, name, database.stand_in, database.options
            ) as created,
        ):
            for fact in read_facts():
                answer = ask(fact, created.dsn)
                self.evidence.answers.append(
                    Answer(fact.question, where, answer, fact.expected(kind))
                )

    def _ask_plans(self, where: str, database: _Database) -> None:
        """Sweeps over a large table."""
        with tempfile.TemporaryDirectory(prefix="duesweep-prove-") as folder:
            for question, answer, expected in ask_plans(
                database.dsn,
                database.options,
                Path(folder),
                rows=self.options.rows,
                ticks=self.options.ticks,
            ):
                self.evidence.answers.append(Answer(question, where, answer, expected))

    def _parts(
        self, name: str, dsn: str, stand_in: str | None, *, is_last: bool
    ) -> Iterator[tuple[str, str, Callable[[], None]]]:
        """Where, which part, and its work: quick ones first, and tests in the remaining time."""
        databases = {
            kind: _Database(dsn, options, stand_in)
            for kind, options in (_AS_IT_IS if stand_in else OPTIONS).items()
        }
        for kind, database in databases.items():
            where = f"{name}, {kind}"
            yield where, "facts", partial(self._ask_facts, where, kind, database)
        # Row versions change how readers and writers meet.
        for kind, database in list(databases.items())[:2]:
            where = f"{name}, {kind}"
            yield where, "plans", partial(self._ask_plans, where, database)
        if not is_last:
            return
        yield name, "benchmark", partial(self._run_benchmark, dsn)
        yield name, "trials", partial(self._run_trials, dsn)
        (first, usual), *others = databases.items()
        for kind, database in others:
            yield f"{name}, {kind}", "tests", partial(self._run_tests, kind, database, [_CONTRACT])
        yield f"{name}, {first}", "tests", partial(self._run_tests, first, usual, _MARKED)

    def _run_benchmark(self, dsn: str) -> None:
        rows = self.options.benchmark_rows
        self.evidence.figures.append(run_benchmark(dsn, rows, seconds=self.seconds_left))

    def _run_trials(self, dsn: str) -> None:
        figures = run_trials(dsn, self.options.trials, seconds=self.seconds_left)
        self.evidence.figures.append(figures)

    def _run_tests(self, kind: str, database: _Database, chosen: Sequence[str]) -> None:
        title = f"`pytest {' '.join(chosen)}`, {kind}"
        self.evidence.figures.append(
            run_tests(title, database.dsn, database.options, chosen, seconds=self.seconds_left)
        )


def _made_by(arguments: Sequence[str], dsn: str | None) -> str:
    # It has a password.
    shown = [word.replace(dsn, "...") if dsn else word for word in arguments]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    command = " ".join(["scripts/prove sqlserver", *shown])
    return (
        f"Made by `{command}` on {time.strftime('%Y-%m-%d')}, "
        f"duesweep {__version__} ({commit or 'no commit'}), {os.cpu_count()} cores, "
        f"Python {platform.python_version()}."
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
