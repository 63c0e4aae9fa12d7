"""Bodies far larger than a batch, and what they cost a Python worker."""

import os
from pathlib import Path

from pyspark.sql import SparkSession

from duesweep.sweep.spark import SparkEngine
from duesweep_testing.builders import delayed_row
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep

_MB = 1_000_000
# Seen: about 100 MB for a worker with its imports, and under four times the largest body.
_BOUND_MB = 450


def test_body_of_60_mb_and_many_of_1_mb_stay_within_bounds(
    spark: SparkSession, endpoint: Endpoint
) -> None:
    endpoint.set_up("Billing")
    huge = os.urandom(60 * _MB)
    endpoint.load([delayed_row(body=huge)])
    endpoint.load(delayed_row(body=os.urandom(_MB)) for _ in range(150))

    summary = run_sweep(endpoint, SparkEngine(spark))

    assert (summary.dispatched, summary.bytes) == (151, 210 * _MB)
    sizes = endpoint.fetch('SELECT octet_length(body) AS size FROM "Billing"')
    assert sorted({row.size for row in sizes}) == [_MB, 60 * _MB]
    (largest,) = (r.body for r in endpoint.queue_rows("Billing") if len(r.body or b"") > _MB)
    assert largest == huge
    peak = max(peaks_of_workers())
    print(f"peak of a Python worker: {peak} MB")
    assert peak < _BOUND_MB


def test_body_of_60_mb_ends_whole_in_errors(
    spark: SparkSession, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("error")
    huge = os.urandom(60 * _MB)
    endpoint.load([delayed_row("Nowhere", body=huge)])

    summary = run_sweep(
        endpoint, SparkEngine(spark), retry__max_attempts=1, retry__error_queue="error"
    )

    assert summary.exhausted == 1
    (error,) = ledger.rows("errors")
    assert bytes(error.body) == huge
    assert endpoint.queue_rows("error")[0].body == huge


def peaks_of_workers() -> list[int]:
    """The most memory that each of this process's Python workers has had, in MB."""
    peaks = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            status = (folder / "status").read_text()
        except OSError:
            continue
        # Other tests, of another worker of pytest's, have such processes, too.
        if b"pyspark.daemon" in command and "VmHWM" in status and _is_ours(status):
            peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
            peaks.append(int(peak.split()[1]) // 1_000)
    return peaks


def _is_ours(status: str) -> bool:
    """Whether a process descends from this one, by its /proc/<pid>/status."""
    while True:
        parent = next(line for line in status.splitlines() if line.startswith("PPid")).split()[1]
        if parent == str(os.getpid()):
            return True
        try:
            status = Path("/proc", parent, "status").read_text()
        except OSError:
            return False
