"""Compares the start of a sweep on Spark with a bare spark-submit, in turns. See README.md."""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import median

import psycopg
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from sweeps import sweep_from_shell
from testbed import Load, Testbed

from duesweep_testing.folder import clear_folder, lock_folder, write_config
from duesweep_testing.server import EmbeddedServer
from duesweep_testing.traffic import ENDPOINT

ROOT = Path(__file__).resolve().parent.parent
_ROWS = 1_000
_ON_SPARK = ("--set", "sweep.spark_from=0", "--set", "ledger.writer=spark")
# What anybody needs for a Delta table, and nothing else.
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both in turns, and print the medians of their seconds."""
    parser = argparse.ArgumentParser(prog="bench/run start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench")
    options = parser.parse_args(arguments)
    folder: Path = options.folder.absolute()
    with lock_folder(folder):
        clear_folder(folder)
        try:
            figures = _compare(folder, options.rounds)
        finally:
            clear_folder(folder)
    print(json.dumps(figures, indent=2))
    return 0


def _compare(folder: Path, rounds: int) -> dict[str, float]:
    with EmbeddedServer(folder, timezone="UTC") as server:
        settings = {
            "store": {"kind": "postgresql", "dsn": server.dsn, "endpoint": ENDPOINT},
            "ledger": {"root": str(folder / "ledger")},
        }
        file = folder / "duesweep.toml"
        testbed = Testbed(write_config(file, settings, "Written by bench/run."), Load(_ROWS))
        testbed.prepare()
        _sweep(testbed, file)  # makes the ledger
        sweeps, bare = [], []
        for _ in range(rounds):
            bare.append(_open_table(folder))
            sweeps.append(_sweep(testbed, file))
    table, first, end = median(bare), median(s[0] for s in sweeps), median(s[1] for s in sweeps)
    return {
        "bare spark-submit, to the end": round(table, 2),
        "sweep, to its first claim": round(first, 2),
        "sweep, to its end": round(end, 2),
        "first claim / bare": round(first / table, 2),
    }


def _open_table(folder: Path) -> float:
    script = folder / "bare.py"
    script.write_text(_BARE)
    jars = ":".join(map(str, sorted((ROOT / ".cache" / "jars").glob("*.jar"))))
    command = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]"]
    command += ["--driver-class-path", jars]
    for name, value in _BARE_SETTINGS.items():
        command += ["--conf", f"{name}={value}"]
    started = time.monotonic()
    subprocess.run(
        [*command, str(script), str(folder / "ledger" / "tombstones")],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return time.monotonic() - started


def _sweep(testbed: Testbed, file: Path) -> tuple[float, float]:
    """Seconds from the shell to the first claim, by the server's clock, and to the end."""
    testbed.reset()
    with psycopg.connect(testbed.dsn, autocommit=True) as connection:
        (started,) = connection.execute("SELECT clock_timestamp()").fetchone() or (None,)
    whole = sweep_from_shell(file, *_ON_SPARK)
    first = _first_claim(file.parent / "ledger" / "tombstones", started)
    return (first - started).total_seconds(), whole.seconds


def _first_claim(tombstones: Path, since: datetime) -> datetime:
    """The time of the first claim since then, by the server's clock."""
    builder = QueryBuilder().register("tombstones", DeltaTable(tombstones))
    query = f"SELECT min(dispatched_at) AS first FROM tombstones WHERE dispatched_at > '{since}'"
    first: datetime = pa.table(builder.execute(query)).column("first")[0].as_py()
    return first


if __name__ == "__main__":
    sys.exit(main())
