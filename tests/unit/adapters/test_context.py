"""Configuration to adapters: values that travel, and their texts."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from duesweep.config import Config, load
from duesweep.config.adapters.context import ledger_root, store_of, sweep_context
from duesweep.core.address import TableName
from duesweep.core.errors import ConfigError
from duesweep.core.policy import BatchSize, Retry
from duesweep.stores.dialect import JOURNAL_TABLES
from duesweep.stores.store import SqlStore
from duesweep.sweep.job import SweepContext

DSN = "postgresql://sweeper:s3cret@db.example:5432/sales"


SETTINGS = {
    "store.dsn": DSN,
    "store.endpoint": "Sales.Orders",
    "queues.default.dsn": "postgresql://q:0ther@db.example/q",
    "retry.max_attempts": "2",
    "retry.initial_seconds": "3",
    "retry.max_seconds": "4",
    "retry.error_queue": "error",
    "retry.max_exhausted_per_sweep": "5",
    "ledger.root": "/ledger",
    "sweep.batch_rows": "6",
    "sweep.batch_bytes": "7",
    "sweep.slices": "8",
}


def _config(**store: str) -> Config:
    settings = SETTINGS | {f"store.{name}": value for name, value in store.items()}
    return load(None, [f"{name}={value}" for name, value in settings.items()])


def test_every_setting_arrives_in_the_parts() -> None:
    context = sweep_context(_config(writer_time_zone="Asia/Kolkata"))

    assert context.batch_size == BatchSize(rows=6, bytes=7)
    assert context.retry == Retry(
        max_attempts=2,
        initial_seconds=3,
        max_seconds=4,
        max_exhausted_per_sweep=5,
        error_queue="error",
    )
    assert context.slices == 8
    assert context.ledger_root == "/ledger"
    assert store_of(_config(writer_time_zone="Asia/Kolkata")).writer_time_zone == "Asia/Kolkata"


@pytest.mark.parametrize(
    ("dsn", "idle_seconds"),
    [("", 2), ("postgresql://q:0ther@db.example/q", 120)],
    ids=["own server", "another server"],
)
def test_server_ends_the_batch_of_a_silent_client_soon_unless_the_batch_waits_for_another_server(
    dsn: str, idle_seconds: float
) -> None:
    settings = {"store.dsn": DSN, "store.endpoint": "Sales.Orders", "ledger.root": "/ledger"}
    settings |= {"queues.default.dsn": dsn} if dsn else {}
    store = store_of(load(None, [f"{name}={value}" for name, value in settings.items()]))

    assert isinstance(store, SqlStore)
    assert store.timeouts.task.idle_seconds == idle_seconds


def test_source_is_database_schema_and_table_and_never_a_host() -> None:
    assert store_of(_config()).source == "sales/public.Sales.Orders.Delayed"
    assert store_of(_config(name="orders")).source == "orders"


def test_delayed_table_is_the_endpoints_unless_another_is_set() -> None:
    assert store_of(_config()).delayed == TableName("public", "Sales.Orders.Delayed")
    other = store_of(_config(schema="my schema", delayed_table="Late"))
    assert other.delayed == TableName("my schema", "Late")
    assert other.addresses.own_queue == TableName("my schema", "Sales.Orders")


def test_duesweeps_own_tables_are_in_the_stores_schema() -> None:
    names = store_of(_config(schema="my schema")).names()

    tables = {"delayed", *JOURNAL_TABLES}
    assert {names[table].partition(".")[0] for table in tables} == {'"my schema"'}


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        *((root, root) for root in ("/ledger", "s3a://bucket/ledger", "dbfs:/ledger", "ledger")),
        *((root, root) for root in ("abfss://a@b.example/x", "main.ledger")),
        ("~/ledger", "{home}/ledger"),
        ("~", "{home}"),
        ("./ledger", "{here}/ledger"),
        ("build/ledger", "{here}/build/ledger"),
    ],
)
def test_ledger_root_is_found_from_home_and_the_current_folder_and_others_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, root: str, expected: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    assert ledger_root(root) == expected.format(home=tmp_path / "home", here=tmp_path)


def test_home_folder_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"ledger\.root is '~no-such-user/ledger'"):
        ledger_root("~no-such-user/ledger")


TESTS = Path(__file__).parents[2]
POSTGRESQL = "postgresql://sweeper:s3cret@db.example:5432/sales"
SQL_SERVER = "Server=db.example;Database=sales;Uid=sweeper;Pwd={s3cret}"
RABBITMQ = "amqp://sweeper:s3cret@broker.example/v"
ANSWER = r"""
import pickle, sys
shipped = pickle.load(sys.stdin.buffer)
assert "pydantic" not in sys.modules
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


@pytest.mark.parametrize("elsewhere", [False, True])
def test_mode_that_queues_of_another_server_cannot_have_is_refused(
    tmp_path: Path, *, elsewhere: bool
) -> None:
    asked = {"store.transaction_mode": "sends-atomic-with-receive"}
    world = WORLDS["queues elsewhere" if elsewhere else "postgresql"]

    if elsewhere:
        with pytest.raises(ConfigError, match="transaction_mode is sends-atomic"):
            _context({**world, **asked}, tmp_path)
    else:
        assert _context({**world, **asked}, tmp_path).may_move
    weaker = {**world, "store.transaction_mode": "receive-only"}
    assert _context(weaker, tmp_path).may_move is not elsewhere


def _context(settings: Settings, folder: Path) -> SweepContext:
    given = {**settings} | {"store.endpoint": "Sales.Orders", "ledger.root": "/ledger"}
    file = folder / "duesweep.toml"
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in given.items()))
    return sweep_context(load(file))
