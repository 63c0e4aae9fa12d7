"""A sweep on SQL Server, and two plain processes.

As a script, this is one of the plain processes.
"""

import json
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from measure import NOT_RUN, Faults, Figure, ratio_of, say
from peers import Job, Processes, serve
from sweeps import WarmSession

from duesweep import Duesweep
from duesweep.config import Config
from duesweep.config.adapters.context import sweep_context
from duesweep.core.policy import DEFAULT_TIMEOUTS
from duesweep.drivers.sqlserver.dsn import odbc
from duesweep.drivers.sqlserver.session import connect
from duesweep.drivers.statements import statement  # noqa: TID251 - creates its tables
from duesweep.operations.demo.folder import write_config
from duesweep.operations.demo.traffic import ENDPOINT, Traffic, generate
from duesweep.sweep.in_process import InProcessEngine
from duesweep.sweep.sweep import sweep

if TYPE_CHECKING:
    import pyodbc

VARIABLE = "DUESWEEP_TEST_SQLSERVER"
_DATABASE = "duesweep_bench"
_DELAYED = f"[dbo].[{ENDPOINT}.Delayed]"
_QUEUES = {name: f"[dbo].[{name}]" for name in ("Billing", "Shipping", "Invoicing", "Accounting")}
_FORWARD = ',"NServiceBus.SqlServer.ForwardDestination":'
_BATCH = 1_000
# As variables, which serve the index on every server.
_BOUNDS = "SET NOCOUNT ON; DECLARE @First datetime = ?, @End datetime = ?; SET NOCOUNT OFF;"
_SPAN = "Due >= @First AND Due < @End"
_PLAIN = "two plain processes"
_DROP_SECONDS = 60


def sqlserver_options(parser: ArgumentParser) -> None:
    """Options of `bench/run sqlserver`."""
    parser.add_argument("--dsn", default=os.environ.get(VARIABLE), help=f"by default ${VARIABLE}")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)


def sqlserver(options: Namespace, folder: Path) -> list[Figure]:
    """All contenders alternately, in a database of its own."""
    if not options.dsn:
        say(f"name a server with --dsn or {VARIABLE}")
        sys.exit(NOT_RUN)
    with _database(options.dsn) as dsn, closing(_connect(dsn)) as connection:
        settings = {
            "store": {"kind": "sqlserver", "dsn": dsn, "endpoint": ENDPOINT},
            "ledger": {"root": str(folder / "ledger")},
        }
        config = write_config(folder / "duesweep.toml", settings, "Written by bench/run.")
        _prepare(connection, config, options.rows)
        session = WarmSession()
        # The step before the measurement, which returns the measured step; that returns the
        # seconds.
        contenders: dict[str, Callable[[], Callable[[], float]]] = {
            _PLAIN: lambda: partial(_seconds, _plain(dsn, options.rows).run),
            "sweep on Spark, dispatch": lambda: lambda: session.sweep(config)["run_slices"],
            "sweep in process": lambda: partial(_seconds, partial(_sweep_in_process, config)),
        }
        rates: dict[str, list[float]] = defaultdict(list)
        faults: dict[str, Faults] = defaultdict(Faults)
        for number in range(options.rounds):
            turn = list(contenders)[number % len(contenders) :] + list(contenders)
            for name in turn[: len(contenders)]:
                _reset(connection)
                rates[name].append(options.rows / contenders[name]()())
                faults[name] += _count_faults(connection)
                say(f"{name}: {rates[name][-1]:,.0f} rows/s, {faults[name]}")
    return [
        Figure(
            name,
            tuple(map(round, rates[name])),
            "rows/s",
            peer=_PLAIN,
            ratio=ratio_of(rates[name], rates[_PLAIN]),
            faults=faults[name],
        )
        for name in contenders
    ]


def _sweep_in_process(config: Config) -> None:
    summary = sweep(InProcessEngine(), sweep_context(config))
    if summary.outcome != "done":
        raise RuntimeError(f"the sweep ended as {summary.outcome}: {summary.reason}")


@contextmanager
def _database(dsn: str) -> Iterator[str]:
    """A database of its own on the server."""
    connection = _connect(dsn)
    if connection.execute(f"SELECT DB_ID('{_DATABASE}')").fetchval() is not None:
        sys.exit(f"There is a database {_DATABASE} already: delete it, if it is not needed")
    connection.execute(f"CREATE DATABASE {_DATABASE}")
    kept = [pair for pair in dsn.rstrip(";").split(";") if not pair.lower().startswith("database=")]
    try:
        yield ";".join([*kept, f"Database={_DATABASE}"])
    finally:
        _drop(connection)


def _drop(connection: "pyodbc.Connection") -> None:
    """Drop it. A session that has ended is there for a moment yet."""
    deadline = time.monotonic() + _DROP_SECONDS
    while True:
        try:
            connection.execute(f"DROP DATABASE {_DATABASE}")
        except odbc().Error:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def _connect(dsn: str) -> "pyodbc.Connection":
    return connect(dsn, DEFAULT_TIMEOUTS.task)._raw  # noqa: SLF001 - with its ODBC driver


def _prepare(connection: "pyodbc.Connection", config: Config, rows: int) -> None:
    """Create the tables, and the rows that `_reset` copies."""
    Duesweep(config).setup()
    for queue in _QUEUES.values():
        names = {"queue": queue, "queue_literal": queue, "queue_lock": queue}
        connection.execute(statement("sqlserver", "create_queue").format(**names))
    connection.execute(
        "CREATE TABLE bench_pristine (Headers nvarchar(max), Body varbinary(max), Due datetime)"
    )
    (now,) = connection.execute("SELECT GETUTCDATE()").fetchone()
    traffic = Traffic(rows, body_bytes=800, destinations=tuple(_QUEUES))
    cursor = connection.cursor()
    cursor.fast_executemany = True
    cursor.setinputsizes([(odbc().SQL_WVARCHAR, 0, 0), (odbc().SQL_VARBINARY, 0, 0), None])
    loaded = [(row.headers, row.body, row.due) for row in generate(traffic, now)]
    for start in range(0, rows, _BATCH):
        cursor.executemany(
            "INSERT INTO bench_pristine VALUES (?, ?, ?)", loaded[start : start + _BATCH]
        )


def _reset(connection: "pyodbc.Connection") -> None:
    for table in (_DELAYED, *_QUEUES.values()):
        connection.execute(f"TRUNCATE TABLE {table}")
    connection.execute(
        f"INSERT INTO {_DELAYED} (Headers, Body, Due) SELECT Headers, Body, Due FROM bench_pristine"
    )
    # A server that stands in for SQL Server may keep them by itself, and not know the statement.
    with suppress(odbc().ProgrammingError):
        connection.execute(f"UPDATE STATISTICS {_DELAYED}")


def _count_faults(connection: "pyodbc.Connection") -> Faults:
    """How many messages are not in their queue, and how many are there, or elsewhere, twice."""
    rows = connection.execute("SELECT Headers FROM bench_pristine")
    expected = Counter(_id_and_destination(headers) for (headers,) in rows)
    found: Counter[tuple[str, str]] = Counter()
    for name, queue in _QUEUES.items():
        rows = connection.execute(f"SELECT Headers FROM {queue}")
        found.update((json.loads(headers)["NServiceBus.MessageId"], name) for (headers,) in rows)
    left = connection.execute(f"SELECT COUNT(*) FROM {_DELAYED}").fetchval()
    missing = (expected - found).total()
    # A message in the store and in a queue is doubled as well.
    return Faults(missing, (found - expected).total() + max(0, left - missing))


def _id_and_destination(headers: str) -> tuple[str, str]:
    values = json.loads(headers)
    return values["NServiceBus.MessageId"], values["NServiceBus.SqlServer.ForwardDestination"]


def _plain(dsn: str, rows: int) -> Processes:
    share = -(-rows // 2)
    jobs = [{"dsn": dsn, "offset": number * share, "limit": share} for number in range(2)]
    return Processes(Path(__file__).resolve(), jobs)


def _seconds(action: Callable[[], object]) -> float:
    started = time.monotonic()
    action()
    return time.monotonic() - started


def _prepare_share(job: Job) -> Callable[[], None]:
    """Plan the spans. Like the plan of the sweep, this is not measured."""
    connection = _connect(job["dsn"])
    dues = [
        due
        for (due,) in connection.execute(
            f"SELECT CONVERT(varchar(23), Due, 121) FROM {_DELAYED} WHERE Due < GETUTCDATE()"
            f" ORDER BY Due OFFSET {job['offset']} ROWS FETCH NEXT {job['limit'] + 1} ROWS ONLY"
        ).fetchall()
    ]
    # A span ends where the next one begins, in the other process too.
    end = dues[job["limit"]] if len(dues) > job["limit"] else "9999-12-31"
    # As text a Due may be rounded up, and the first message must not be left out.
    first = dues[0] if job["offset"] else "1753-01-01"
    bounds = [first, *dues[_BATCH : job["limit"] : _BATCH], end]
    return lambda: _sweep_share(connection, bounds)


def _sweep_share(connection: "pyodbc.Connection", bounds: Sequence[str]) -> None:
    """Claim a span of Dues, cut the headers, insert into each destination, delete the span."""
    connection.autocommit = False
    inserts: dict[str, pyodbc.Cursor] = {}
    for span in pairwise(bounds):
        rows = connection.execute(
            f"{_BOUNDS} SELECT Headers, Body FROM {_DELAYED} WITH (UPDLOCK, ROWLOCK) WHERE {_SPAN}",
            *span,
        ).fetchall()
        for destination, group in _by_destination(rows).items():
            cursor = inserts.setdefault(destination, connection.cursor())
            cursor.fast_executemany = True
            cursor.setinputsizes([(odbc().SQL_WVARCHAR, 0, 0), (odbc().SQL_VARBINARY, 0, 0)])
            cursor.executemany(
                f"INSERT INTO {_QUEUES[destination]} (Id, Recoverable, Headers, Body)"
                " VALUES (NEWID(), 1, ?, ?)",
                group,
            )
        connection.execute(f"{_BOUNDS} DELETE FROM {_DELAYED} WHERE {_SPAN}", *span)
        connection.commit()


def _by_destination(rows: Sequence[tuple[str, bytes]]) -> dict[str, list[tuple[str, bytes]]]:
    groups: dict[str, list[tuple[str, bytes]]] = defaultdict(list)
    for headers, body in rows:
        end = headers.rindex(_FORWARD)
        destination = json.loads(headers[end + len(_FORWARD) : -1])
        groups[destination].append((headers[:end] + "}", body))
    return groups


if __name__ == "__main__":
    sys.exit(serve(_prepare_share))
