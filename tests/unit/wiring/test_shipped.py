"""What a sweep ships to executors: plain values that another process can read, without a secret."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from duesweep import wiring
from duesweep.config import load
from duesweep.sweep.job import SweepContext

TESTS = Path(__file__).parents[2]
POSTGRESQL = "postgresql://sweeper:s3cret@db.example:5432/sales"
SQL_SERVER = "Server=db.example;Database=sales;Uid=sweeper;Pwd={s3cret}"
RABBITMQ = "amqp://sweeper:s3cret@broker.example/v"
ANSWER = r"""
import pickle, sys
shipped = pickle.load(sys.stdin.buffer)
for name, value in shipped.items():
    print(name, repr(value), sep="\t", file=sys.stderr)
sys.stdout.buffer.write(pickle.dumps(shipped))
"""
Settings = Mapping[str, object]
WORLDS: dict[str, Settings] = {
    "postgresql": {"store.dsn": POSTGRESQL, "store.writer_time_zone": "Asia/Kolkata"},
    "queues elsewhere": {
        "store.dsn": POSTGRESQL,
        "queues.default.dsn": "postgresql://q:s3cret@other.example/q",
    },
    "rabbitmq": {
        "store.dsn": POSTGRESQL,
        "queues.default.kind": "rabbitmq",
        "queues.default.url": RABBITMQ,
    },
    "allowed": {"store.dsn": POSTGRESQL, "sweep.allow_destinations": ["Billing*"]},
    "timeouts": {"store.kind": "sql-persistence", "store.dsn": POSTGRESQL},
    "timeouts on SQL Server": {"store.kind": "sql-persistence", "store.dsn": SQL_SERVER},
    "custom": {
        "store.kind": "support.acme_stores:AcmeStore",
        "store.dsn": POSTGRESQL,
        "queues.default.kind": "postgresql",
    },
    "sqlserver": {"store.kind": "sqlserver", "store.dsn": SQL_SERVER},
    "msmq": {"store.kind": "msmq", "store.dsn": SQL_SERVER},
}


def test_another_process_reads_what_is_shipped_and_shows_no_dsn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=s3cret")
    contexts = {world: _context(settings, tmp_path) for world, settings in WORLDS.items()}

    done = subprocess.run(
        [sys.executable, "-c", ANSWER],
        input=pickle.dumps(contexts),
        env=os.environ | {"PYTHONPATH": f"{TESTS.parent / 'lib'}:{TESTS}"},
        capture_output=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr.decode()
    assert pickle.loads(done.stdout) == contexts
    shown = dict(line.split("\t") for line in done.stderr.decode().splitlines())
    assert {world for world, text in shown.items() if "Sales" in text} == set(WORLDS)
    for secret in ("s3cret", ".example", "sweeper"):
        assert [world for world, text in shown.items() if secret in text] == []


def _context(settings: Settings, folder: Path) -> SweepContext:
    given = {**settings} | {"store.endpoint": "Sales.Orders", "ledger.root": "/ledger"}
    file = folder / "duesweep.toml"
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in given.items()))
    return wiring.sweep_context(load(file))
