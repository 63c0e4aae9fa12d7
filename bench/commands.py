"""The cost of commands: a small tick, a start of Spark, many endpoints at once, and `audit` and
`maintain` over a large ledger.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import time
import uuid
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import psycopg
import pyarrow as pa
from bed import Bed, Load, config_of, open_bed, open_server
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from measure import ROOT, Faults, Figure, ratio_of
from sweeps import ON_SPARK, ShellRun, run_from_shell, shell_command, sweep_from_shell

from duesweep import Duesweep
from duesweep.config import Config, load
from duesweep.config.adapters.context import store_of, sweep_context
from duesweep.ledger.rows import SWEEPS, TOMBSTONES
from duesweep.operations.opening import opened_engine
from duesweep.sweep.in_process import InProcessEngine
from duesweep.sweep.sweep import sweep


def ticks_options(parser: ArgumentParser) -> None:
    """Options of `bench/run ticks`."""
    parser.add_argument("--ticks", type=int, default=20)
    parser.add_argument("--rows", type=int, default=100, help="due messages for each tick")


# The least of a batch job that looks into a table and records a row in Delta.
_BARE_TICK = """
import sys
import psycopg
from arro3.core import Array, DataType, Table
from deltalake import write_deltalake
dsn, folder = sys.argv[1:]
with psycopg.connect(dsn) as connection:
    rows = connection.execute("SELECT 1").fetchall()
column = Array([row[0] for row in rows], DataType.int64())
write_deltalake(folder, Table.from_pydict({"one": column}), mode="append")
print("{}")
"""


def ticks(options: Namespace, folder: Path) -> list[Figure]:
    """Alternately a Python that opens a connection and appends to a Delta table once, a sweep of
    few messages, and one of none; with a JAVA_HOME that does not exist.
    """
    bare, idle, runs = [], [], []
    with open_bed(folder, Load(options.rows)) as bed:
        least = [sys.executable, "-c", _BARE_TICK, bed.dsn, str(folder / "bare")]
        look = [*shell_command(), "sweep", "--json", "--config", str(bed.file)]
        for _ in range(options.ticks):
            bare.append(run_from_shell(least, watches_memory=False))
            bed.add_due()
            runs.append(sweep_from_shell(bed.file, JAVA_HOME="/nonexistent"))
            idle.append(run_from_shell(look, watches_memory=False, JAVA_HOME="/nonexistent"))
        lost = options.ticks * options.rows - _count_sent(bed)
    part = min(100, max(1, len(runs) // 10))
    first, last = (median(run.seconds for run in some) for some in (runs[:part], runs[-part:]))
    peer = "a Python with one connection and one append"
    of_bare, note = _to_bare(runs, bare)
    idle_of_bare, idle_note = _to_bare(idle, bare)
    note += f"; the last ones took {last / first:.2f} times as long as the first"
    return [
        Figure(peer, tuple(run.seconds for run in bare), "s"),
        Figure(
            f"a tick of {options.rows} messages",
            tuple(run.seconds for run in runs),
            "s",
            peer="it",
            ratio=of_bare,
            faults=Faults(lost=max(0, lost), doubled=max(0, -lost)),
            note=note,
        ),
        Figure(
            "an idle sweep",
            tuple(run.seconds for run in idle),
            "s",
            peer="it",
            ratio=idle_of_bare,
            note=idle_note,
        ),
        Figure("its memory", (max(run.peak_mb for run in runs),), "MB", note=_files(folder)),
    ]


def _to_bare(runs: Sequence[ShellRun], bare: Sequence[ShellRun]) -> tuple[float, str]:
    """The ratio of the seconds, and a note of the ratio of CPU, which other work changes less."""
    cpu = [run.cpu for run in runs]
    note = f"{median(cpu):.2f} s of CPU, {ratio_of(cpu, [run.cpu for run in bare]):.2f} of its"
    return ratio_of([run.seconds for run in runs], [run.seconds for run in bare]), note


def _count_sent(bed: Bed) -> int:
    union = " UNION ALL ".join(f"SELECT id FROM {queue}" for queue in bed.queues.values())
    with psycopg.connect(bed.dsn) as connection:
        row = connection.execute(f"SELECT count(*) FROM ({union}) q".encode()).fetchone()
    return int(row[0]) if row else 0


def _files(folder: Path) -> str:
    """How many files of data each table's newest version has, and how many files there are."""
    root = folder / "ledger"
    tables = sorted(path.name for path in root.iterdir() if (path / "_delta_log").is_dir())
    counts = [f"{len(DeltaTable(root / name).file_uris())} in {name}" for name in tables]
    on_disk = sum(path.is_file() for path in root.rglob("*"))
    return f"files of the ledger: {', '.join(counts)}; {on_disk:,} on disk"


def start_options(parser: ArgumentParser) -> None:
    """Options of `bench/run start`."""
    parser.add_argument("--rounds", type=int, default=1)


_START_ROWS = 1_000
# The least that a Delta table needs.
_BARE = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
assert spark.read.format("delta").load(sys.argv[1]).limit(1).count() == 1
"""
_BARE_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def start(options: Namespace, folder: Path) -> list[Figure]:
    """Alternately a sweep on Spark, and a bare spark-submit that opens a table of its ledger."""
    with open_bed(folder, Load(_START_ROWS)) as bed:
        _start_once(bed, folder)  # makes the ledger
        bare, firsts, ends = [], [], []
        faults = Faults()
        for _ in range(options.rounds):
            bare.append(_open_table(folder))
            first, end = _start_once(bed, folder)
            faults += bed.count()
            firsts.append(first)
            ends.append(end)
    peer = "a bare spark-submit"
    return [
        Figure(f"{peer}, to its end", tuple(bare), "s"),
        Figure(
            "a sweep on Spark, to its first claim",
            tuple(firsts),
            "s",
            peer=peer,
            ratio=ratio_of(firsts, bare),
        ),
        Figure(
            "a sweep on Spark, to its end",
            tuple(ends),
            "s",
            peer=peer,
            ratio=ratio_of(ends, bare),
            faults=faults,
        ),
    ]


def _open_table(folder: Path) -> float:
    script = folder / "bare.py"
    script.write_text(_BARE)
    jars = Path(os.environ.get("DUESWEEP_JARS", ROOT / ".cache" / "jars"))
    command = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]"]
    command += ["--driver-class-path", ":".join(map(str, sorted(jars.glob("*.jar"))))]
    for name, value in _BARE_SETTINGS.items():
        command += ["--conf", f"{name}={value}"]
    started = time.monotonic()
    subprocess.run(
        [*command, str(script), str(folder / "ledger" / "tombstones")],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return round(time.monotonic() - started, 2)


def _start_once(bed: Bed, folder: Path) -> tuple[float, float]:
    """Seconds from the shell to the first claim, by the server's clock, and to the end."""
    bed.reset()
    with psycopg.connect(bed.dsn, autocommit=True) as connection:
        (started,) = connection.execute("SELECT clock_timestamp()").fetchone() or (None,)
    whole = sweep_from_shell(bed.file, *ON_SPARK, "--set", "ledger.writer=spark")
    first = _first_claim(folder / "ledger" / "tombstones", started)
    return round((first - started).total_seconds(), 2), whole.seconds


def _first_claim(tombstones: Path, since: datetime) -> datetime:
    """The time of the first claim since then, by the server's clock."""
    builder = QueryBuilder().register("tombstones", DeltaTable(tombstones))
    query = f"SELECT min(dispatched_at) AS first FROM tombstones WHERE dispatched_at > '{since}'"
    first: datetime = pa.table(builder.execute(query)).column("first")[0].as_py()
    return first


_DATABASES = ("one", "two", "down")
# Nothing listens there.
_DOWN = "postgresql://postgres@127.0.0.1:1/down"


def fleet_options(parser: ArgumentParser) -> None:
    """Options of `bench/run fleet`."""
    parser.add_argument("--endpoints", type=int, default=12)
    parser.add_argument("--most", type=int, default=2_000, help="due messages of the largest")
    parser.add_argument("--rounds", type=int, default=1)


def fleet(options: Namespace, folder: Path) -> list[Figure]:
    """Many endpoints with one command, and one after another; one of three databases is down."""
    # From 1 to `most`, each by one factor larger than the one before.
    steps = max(1, options.endpoints - 1)
    counts = [round(options.most ** (number / steps)) for number in range(options.endpoints)]
    together, apart = [], []
    with open_server(folder, None) as dsn:
        endpoints = _Fleet(dsn, folder, counts)
        for _ in range(options.rounds):
            endpoints.fill()
            together.append(endpoints.swept([], {4}))
            endpoints.fill()
            each = [endpoints.swept(["--endpoint", name], {0, 4}) for name in endpoints.names]
            apart.append(round(sum(each), 2))
        faults = endpoints.faults()
    return [
        Figure("one after another", tuple(apart), "s"),
        Figure(
            f"{options.endpoints} endpoints at once",
            tuple(together),
            "s",
            peer="one after another",
            ratio=ratio_of(together, apart),
            faults=faults,
            note=f"{sum(endpoints.alive.values()):,} messages",
        ),
    ]


class _Fleet:
    """The endpoints, their tables, and their configuration."""

    def __init__(self, dsn: str, folder: Path, counts: Sequence[int]) -> None:
        self._root = folder / "ledger"
        server, _, _ = dsn.rpartition("/")
        self._dsns = {name: f"{server}/{name}" for name in _DATABASES[:2]} | {"down": _DOWN}
        self.names = [f"Endpoint{number}" for number in range(len(counts))]
        databases = [_DATABASES[number % 3] for number in range(len(counts))]
        self._database = dict(zip(self.names, databases, strict=True))
        due = dict(zip(self.names, counts, strict=True))
        self.alive = {name: due[name] for name in self.names if self._database[name] != "down"}
        self._file = folder / "fleet.toml"
        self._file.write_text("\n".join(self._lines()))
        self._filled = 0
        with psycopg.connect(dsn, autocommit=True) as admin:
            for name in _DATABASES[:2]:
                admin.execute(f"CREATE DATABASE {name}".encode())
        for name in _DATABASES[:2]:
            file = folder / f"{name}.toml"
            config = config_of(file, self._dsns[name], str(self._root))
            Bed(file, config, Load(max(counts))).prepare()
        for name in self.alive:
            Duesweep(load(self._file, endpoint=name)).setup()

    def _lines(self) -> list[str]:
        lines = ["[defaults.store]", 'kind = "postgresql"', "[defaults.ledger]"]
        lines.append(f"root = {json.dumps(str(self._root))}")
        for name in self.names:
            dsn = json.dumps(self._dsns[self._database[name]])
            lines.append(f'[[endpoint]]\nstore = {{endpoint = "{name}", dsn = {dsn}}}')
        return lines

    def fill(self) -> None:
        """Store the messages that are due."""
        for name, count in self.alive.items():
            self._ask(
                name,
                "INSERT INTO {delayed} (headers, body, due) SELECT headers, body, due"
                f" FROM bench_pristine WHERE is_due LIMIT {count}",
            )
        self._filled += 1

    def swept(self, options: Sequence[str], codes: set[int]) -> float:
        """Sweep. Returns the seconds."""
        command = [*shell_command(), "sweep", "--config", str(self._file), *options]
        begin = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode not in codes:
            raise RuntimeError(f"a sweep ended with {done.returncode}: {done.stderr[-2_000:]}")
        return round(time.monotonic() - begin, 2)

    def faults(self) -> Faults:
        """What still waits, and whether the ledger has as many tombstones as were stored."""
        waiting = sum(self._ask(name, "SELECT count(*) FROM {delayed}") for name in self.alive)
        told = DeltaTable(self._root / "tombstones").to_pyarrow_table(columns=["message_key"])
        missing = self._filled * sum(self.alive.values()) - int(told.num_rows)
        return Faults(lost=waiting + max(0, missing), doubled=max(0, -missing))

    def _ask(self, name: str, text: str) -> int:
        delayed = store_of(load(self._file, endpoint=name)).delayed
        with psycopg.connect(self._dsns[self._database[name]]) as connection:
            asked = connection.execute(text.format(delayed=delayed).encode())
            row = asked.fetchone() if asked.description else None
            return int(row[0]) if row else 0


_PER_SWEEP = 20_000
_ZEROS = ("failed", "exhausted", "skipped", "gone", "eligible_later", "held", "left")


def audit_options(parser: ArgumentParser) -> None:
    """Options of `bench/run audit`."""
    parser.add_argument("--tombstones", type=int, default=200_000)
    parser.add_argument("--stored", type=int, default=20_000)


def audit(options: Namespace, folder: Path) -> list[Figure]:
    """`duesweep audit` of a ledger and a store, without Java. Fails if it finds anything."""
    with open_bed(folder, Load(100)) as bed:
        bed.add_due()
        context = sweep_context(bed.config)
        sweep(InProcessEngine(), context)
        with psycopg.connect(bed.dsn, autocommit=True) as connection:
            connection.execute(
                f"INSERT INTO {bed.delayed} (headers, body, due) SELECT '{{}}', NULL,"
                f" now() + interval '1 day' FROM generate_series(1, {options.stored})".encode()
            )
        for number in range(options.tombstones // _PER_SWEEP):
            _write_sweep(folder / "ledger", context.store.source, number)
        command = [*shell_command(), "audit", "--json", "--config", str(bed.file)]
        ran = run_from_shell(command, JAVA_HOME="/nonexistent")
    told = ran.output
    note = f"{told['tombstones']:,} tombstones, {told['stored']:,} messages in the store"
    return [
        Figure("audit", (round(ran.seconds, 1),), "s", faults=Faults(), note=note),
        Figure("its memory", (round(ran.peak_mb),), "MB"),
    ]


def _write_sweep(ledger: Path, source: str, number: int) -> None:
    """The rows of a sweep, in both tables."""
    rng = random.Random(number)
    sweep_id = str(uuid.UUID(int=rng.getrandbits(128), version=4))
    at = datetime.now(UTC) - timedelta(days=1)
    keys = [str(uuid.UUID(int=rng.getrandbits(128), version=4)) for _ in range(_PER_SWEEP)]
    same = {
        "sweep_id": sweep_id,
        "source": source,
        "outcome": "dispatched",
        "destination": "Billing",
    }
    same |= {"due": at, "dispatched_at": at, "lateness_ms": 0, "attempts": 1, "body_bytes": 800}
    columns = {name: [value] * _PER_SWEEP for name, value in same.items()}
    columns |= {"message_key": keys, "message_id": keys[::-1]}
    rows = pa.table(
        [pa.array(columns.get(f.name, [None] * _PER_SWEEP), f.type) for f in TOMBSTONES],
        schema=TOMBSTONES,
    )
    write_deltalake(ledger / "tombstones", rows, mode="append")
    counts = dict.fromkeys(("found", "claimed", "dispatched"), _PER_SWEEP) | dict.fromkeys(
        _ZEROS, 0
    )
    row = counts | {"sweep_id": sweep_id, "source": source, "start": at, "end": at}
    write_deltalake(ledger / "sweeps", pa.Table.from_pylist([row], SWEEPS), mode="append")


_WRITERS = ("delta-rs", "spark")
_TIMED_TICKS = 3


def maintain_options(parser: ArgumentParser) -> None:
    """Options of `bench/run maintain`."""
    parser.add_argument("--ticks", type=int, default=100)
    parser.add_argument("--rows", type=int, default=10, help="due messages for each tick")
    parser.add_argument("--written-by", choices=_WRITERS, default="delta-rs")
    parser.add_argument("--writers", nargs="+", choices=_WRITERS, default=_WRITERS[:1])


def maintain(options: Namespace, folder: Path) -> list[Figure]:
    """`maintain` by each writer on a copy of a ledger of many small ticks; and again, with
    `ledger.vacuum_days=0`, which treats new files as a week old.
    """
    figures = []
    with open_bed(folder, Load(options.rows)) as bed:

        def config(ledger: Path, writer: str, **settings: object) -> Config:
            section = {"writer": writer, **settings}
            return config_of(bed.file, bed.dsn, str(ledger), ledger=section)

        ledger = folder / "ledger"
        made = _ticks(config(ledger, options.written_by), bed, options.ticks)
        figures.append(Figure(f"a tick, by {options.written_by}", tuple(made), "s"))
        for writer in options.writers:
            copy = folder / f"ledger-{writer}"
            shutil.copytree(ledger, copy)
            before = _tick(config(copy, writer), bed)
            figures.append(_maintained(f"maintain, by {writer}", config(copy, writer), copy))
            after = _tick(config(copy, writer), bed)
            name, late = f"maintain a week later, by {writer}", config(copy, writer, vacuum_days=0)
            figures.append(_maintained(name, late, copy))
            note = f"{before:.2f} s before maintain"
            figures.append(Figure(f"a tick after maintain, by {writer}", (after,), "s", note=note))
            shutil.rmtree(copy)
    return figures


def _ticks(config: Config, bed: Bed, count: int) -> list[float]:
    """The seconds of `count` sweeps in this process, with the config's writer of the ledger."""
    context, seconds = sweep_context(config), []
    with opened_engine(context, on_spark=config.ledger.writer == "spark") as engine:
        for _ in range(count):
            bed.add_due()
            started = time.monotonic()
            sweep(engine, context)
            seconds.append(round(time.monotonic() - started, 3))
    return seconds


def _tick(config: Config, bed: Bed) -> float:
    """The median of a few ticks; the first ones warm up."""
    return round(median(_ticks(config, bed, 2 * _TIMED_TICKS)[_TIMED_TICKS:]), 3)


def _maintained(name: str, config: Config, ledger: Path) -> Figure:
    before, started = _disk(ledger), time.monotonic()
    report = Duesweep(config).maintain()
    seconds = round(time.monotonic() - started, 2)
    data = ", ".join(f"{t.table} {t.before.files} → {t.after.files}" for t in report.tables)
    note = f"{before} → {_disk(ledger)}; files of data: {data}"
    return Figure(name, (seconds,), "s", note=note)


def _disk(ledger: Path) -> str:
    files = [path for path in ledger.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / 1e6
    return f"{len(files):,} files, {size:.1f} MB"
