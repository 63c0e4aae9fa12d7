"""The time and the memory of `duesweep audit` over a large ledger, without Java."""

import argparse
import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pyarrow as pa
from deltalake import write_deltalake
from sweeps import peak_mb
from testbed import Load, Testbed
from ticks import make_due

from duesweep.config.adapters.endpoint import sweep_context
from duesweep.ledger.rows import SWEEPS, TOMBSTONES
from duesweep.sweep.sweep import InProcessEngine, sweep
from duesweep_testing.folder import clear_folder, lock_folder, write_config
from duesweep_testing.server import EmbeddedServer
from duesweep_testing.traffic import ENDPOINT

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "audit.json"
_PER_SWEEP = 20_000
_ZEROS = ("failed", "exhausted", "skipped", "gone", "eligible_later", "held", "left")


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill store and ledger, and audit them. Returns 1 if the audit found anything."""
    parser = argparse.ArgumentParser(prog="bench/run audit", description=__doc__)
    parser.add_argument("--tombstones", type=int, default=2_000_000)
    parser.add_argument("--stored", type=int, default=200_000)
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
    return 1 if figures["exit_code"] else 0


def _run(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    with EmbeddedServer(folder, timezone="UTC") as server:
        settings = {
            "store": {"kind": "postgresql", "dsn": server.dsn, "endpoint": ENDPOINT},
            "ledger": {"root": str(folder / "ledger")},
        }
        file = folder / "duesweep.toml"
        config = write_config(file, settings, "Written by bench/run.")
        testbed = Testbed(config, Load(100))
        testbed.prepare()
        make_due(testbed)
        context = sweep_context(config)
        sweep(InProcessEngine(), context)
        with psycopg.connect(testbed.dsn, autocommit=True) as connection:
            connection.execute(
                f"INSERT INTO {testbed.delayed} (headers, body, due) SELECT '{{}}', NULL,"
                f" now() + interval '1 day' FROM generate_series(1, {options.stored})".encode()
            )
        for number in range(options.tombstones // _PER_SWEEP):
            _write_sweep(folder / "ledger", context.store.source, number)
        return _audit(file)


def _write_sweep(ledger: Path, source: str, number: int) -> None:
    """A sweep of so many messages, in both tables."""
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


def _audit(file: Path) -> dict[str, float]:
    started = time.monotonic()
    command = [sys.executable, "-m", "duesweep", "audit", "--json", "--config", str(file)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, env=os.environ | {"JAVA_HOME": "/nonexistent"}
    )
    peak = 0.0
    while process.poll() is None:
        peak = peak_mb(process.pid) or peak
        time.sleep(0.02)
    seconds = time.monotonic() - started
    assert process.stdout is not None
    told = json.loads(process.stdout.read())
    return {
        "seconds": round(seconds, 1),
        "peak_mb": round(peak),
        **{name: told[name] for name in ("tombstones", "sweeps", "stored", "exit_code")},
    }


if __name__ == "__main__":
    sys.exit(main())
