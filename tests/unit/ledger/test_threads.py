"""Several threads of a process write and read ledgers, as a fleet's settlers and looks do."""

import subprocess
import sys
from pathlib import Path

# A process that hangs cannot stop itself: no thread of it continues.
_LIMIT_SECONDS = 60
_WRITES_AND_READS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pyarrow as pa

from duesweep.ledger.base import LedgerPiece, Rows
from duesweep.ledger.delta_rs import DeltaRsTables
from duesweep.ledger.ledger import Ledger
from duesweep.ledger.rows import SCHEMAS

tables = DeltaRsTables(sys.argv[1])
Ledger(tables).create()
schema = SCHEMAS["sweeps"]
row = {"sweep_id": "a", "source": "s", "outcome": "done", "reason": "x" * 500}
batch = pa.RecordBatch.from_pylist([row] * 1_000, schema)


def write(name):
    for _ in range(6):
        tables.write([LedgerPiece("sweeps", Rows(lambda: iter([batch] * 20)), uuid4())])


def read(name):
    for _ in range(12):
        assert all(one["source"] == "s" for one in tables.read("sweeps", ["source"], []))


with ThreadPoolExecutor() as pool:
    works = [pool.submit(work, number) for number in range(3) for work in (write, read)]
    for each in works:
        each.result()
print(sum(1 for _ in tables.read("sweeps", ["source"], [])))
"""


def test_thread_that_reads_does_not_stop_the_ones_that_write(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WRITES_AND_READS, str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            out, told = process.communicate(timeout=_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            out, told = "", "It hangs"
            process.kill()

    assert out == f"{3 * 6 * 20 * 1_000}\n", told
