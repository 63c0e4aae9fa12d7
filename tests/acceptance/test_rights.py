"""The rights that the README lists are enough; without any one of them nothing is lost."""

import json
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from duesweep.cli.app import main
from duesweep.core.address import quote_name
from duesweep.engines.base import Engine
from support.diagnosis import diagnosed
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep

README = Path(__file__).parents[2] / "README.md"
Capture = pytest.CaptureFixture[str]

STORE_SCHEMA, QUEUE_SCHEMA = "store", "queues"
BILLING = f'"{QUEUE_SCHEMA}"."Billing"'
DELAYED = f'"{STORE_SCHEMA}"."Sales.Orders.Delayed"'
JOURNAL = [
    f'"{STORE_SCHEMA}"."duesweep_{t}"'
    for t in ("sweeps", "journal", "attempts", "bindings", "changes", "pauses", "limits")
]
QUEUES = [f'"{STORE_SCHEMA}"."Sales.Orders"', BILLING, f'"{STORE_SCHEMA}"."error"']
SCHEMAS = [f"SCHEMA {STORE_SCHEMA}", f"SCHEMA {QUEUE_SCHEMA}"]
# What the README lists, a right on a thing each.
RIGHTS = [
    *(("USAGE", schema) for schema in SCHEMAS),
    *((right, DELAYED) for right in ("SELECT", "UPDATE", "DELETE")),
    *((right, table) for table in JOURNAL for right in ("SELECT", "INSERT", "UPDATE", "DELETE")),
    *(("INSERT", queue) for queue in QUEUES),
]
# What is found out at the start of a sweep, before it moves anything; the other queues are a
# destination's affair.
OWN = QUEUES[0]
AT_THE_START = [r for r in RIGHTS if r[1] not in {OWN, BILLING, SCHEMAS[1]}]


@pytest.fixture
def owned(endpoint: Endpoint) -> Endpoint:
    """An endpoint with all its tables and messages, which the administrator made."""
    owned = endpoint.named("Sales.Orders", STORE_SCHEMA)
    owned.set_up(BILLING, retry__error_queue="error")
    owned.execute(f"REVOKE ALL ON SCHEMA public, {STORE_SCHEMA}, {QUEUE_SCHEMA} FROM PUBLIC")
    owned.execute(f"REVOKE TEMPORARY ON DATABASE {_database(owned)} FROM PUBLIC")
    owned.delay_many(4, [BILLING, None])
    owned.delay("Nowhere")
    return owned


@pytest.fixture
def sweeper(owned: Endpoint) -> str:
    """The dsn of a role with exactly what the README lists."""
    rights = [f"{right} ON {thing}" for right, thing in RIGHTS]
    sequences = [f"USAGE ON SEQUENCE {_sequence(owned, queue)}" for queue in QUEUES]
    return str(owned.server.role("sweeper", *rights, *sequences))


def _file(owned: Endpoint, dsn: str) -> Path:
    more = {"retry__max_attempts": 1, "retry__error_queue": "error"}
    return owned.config_file(store__dsn=dsn, **more)


def test_readme_lists_these_rights() -> None:
    text = " ".join(README.read_text(encoding="utf-8").split())

    for line in (
        "`USAGE` on the schemas,",
        "`SELECT, UPDATE, DELETE` on the delayed table (a row lock takes `UPDATE`),",
        "`SELECT, INSERT, UPDATE, DELETE` on the `duesweep_…` tables,",
        "`INSERT` on the queue tables, and `USAGE` on their sequences.",
    ):
        assert line in text


def test_listed_rights_are_enough_for_sweep_settle_and_doctor(
    engine: Engine, owned: Endpoint, sweeper: str, ledger: LedgerReader, capsys: Capture
) -> None:
    owned_file = _file(owned, sweeper)
    # The unknown queue is the message's fault, and the doctor says so.
    before = diagnosed(capsys, owned_file)
    assert {check for check, _ in before.to_mend()} == {"table-exists"}

    summary = run_sweep(owned, engine, **_settings(sweeper))

    assert (summary.dispatched, summary.exhausted, summary.outcome) == (4, 1, "failures")
    assert len(ledger.rows("tombstones")) == 5
    assert len(ledger.rows("errors")) == 1
    assert owned.waiting() == []
    assert owned.fetch(f"SELECT * FROM {JOURNAL[0]}") == []
    assert diagnosed(capsys, owned_file).code == 0


def _settings(dsn: str) -> dict[str, Any]:
    return {"store__dsn": dsn, "retry__max_attempts": 1, "retry__error_queue": "error"}


def test_printed_grants_are_enough_to_sweep(endpoint: Endpoint, capsys: Capture) -> None:
    # The names of a role, a queue and its sequence: the last is cut by the server.
    endpoint.execute(f"CREATE SCHEMA {STORE_SCHEMA}")
    error_queue = 'it\'s an "error" $$ {0} ' + "é" * 18
    sweeper = str(endpoint.server.role("sw'ee\"p$$er {0} %s"))
    orders = endpoint.named("Sales.Orders", STORE_SCHEMA)
    settings: dict[str, Any] = {"retry__max_attempts": 1, "retry__error_queue": error_queue}
    file = str(orders.config_file(**settings))
    name = str(conninfo_to_dict(sweeper)["user"])

    assert main(["setup", "--print-sql", "--grant-to", name, "--config", file]) == 0

    orders.execute(f"REVOKE ALL ON SCHEMA public, {STORE_SCHEMA} FROM PUBLIC")
    with psycopg.connect(orders.dsn) as administrator:
        administrator.execute(capsys.readouterr().out.encode())
    orders.delay_many(2, [None])
    orders.delay("Nowhere")
    own = orders.config_file(store__dsn=sweeper, **settings)
    assert main(["sweep", "--json", "--config", str(own)]) == 3
    summary = json.loads(capsys.readouterr().out)
    assert (summary["dispatched"], summary["exhausted"], summary["left"]) == (2, 1, 0)
    assert len(orders.queue_rows(f'"{STORE_SCHEMA}".{quote_name(error_queue)}')) == 1
    assert diagnosed(capsys, own).code == 0

    # What the printed comment says of `queue send --delay`.
    send = ["queue", "send", "Sales.Orders", "--delay", "1h", "--config", str(own)]
    assert main(send) != 0
    orders.execute(f"GRANT INSERT ON {DELAYED} TO {quote_name(name)}")
    assert main(send) == 0


@pytest.mark.parametrize(
    ("right", "thing"), AT_THE_START, ids=[f"{r} {t}".replace('"', "") for r, t in AT_THE_START]
)
def test_without_a_right_the_sweep_ends_before_it_moves_anything(
    right: str, thing: str, owned: Endpoint, sweeper: str, capsys: Capture
) -> None:
    owned.execute(f"REVOKE {right} ON {thing} FROM {_role(sweeper)}")
    file = _file(owned, sweeper)

    assert main(["sweep", "--config", str(file)]) == 2

    told = capsys.readouterr()
    assert told.out == ""
    assert re.fullmatch(r"duesweep: .*(right|grant|permission|GRANT).*\n", told.err), told.err
    assert STORE_SCHEMA in told.err
    assert len(owned.waiting()) == 5
    assert diagnosed(capsys, file).code == 3

    owned.execute(f"GRANT {right} ON {thing} TO {_role(sweeper)}")
    assert main(["sweep", "--config", str(file)]) == 3
    assert owned.waiting() == []


@pytest.mark.parametrize(
    ("missing", "queue"),
    [
        ("INSERT", OWN),
        ("INSERT", BILLING),
        ("USAGE on the sequence", OWN),
        ("USAGE on the sequence", BILLING),
        ("USAGE on the schema", BILLING),
    ],
)
def test_without_a_right_on_a_queue_its_messages_stay_and_others_leave(
    missing: str, queue: str, owned: Endpoint, sweeper: str, capsys: Capture
) -> None:
    right = {
        "INSERT": f"INSERT ON {queue}",
        "USAGE on the sequence": f"USAGE ON SEQUENCE {_sequence(owned, queue)}",
        "USAGE on the schema": f"USAGE ON {SCHEMAS[1]}",
    }[missing]
    owned.execute(f"REVOKE {right} FROM {_role(sweeper)}")
    file = _file(owned, sweeper)

    code = main(["sweep", "--json", "--config", str(file)])

    summary = json.loads(capsys.readouterr().out)
    assert (code, summary["outcome"], summary["left"]) == (4, "incomplete", 2), summary
    assert "permission denied" in summary["reason"], summary
    assert (summary["dispatched"], summary["exhausted"]) == (2, 1)
    assert len(owned.waiting()) == 2

    owned.execute(f"GRANT {right} TO {_role(sweeper)}")
    assert main(["sweep", "--config", str(file)]) == 0
    assert owned.waiting() == []
    assert len(owned.queue_rows(queue)) == 2


def _sequence(owned: Endpoint, queue: str) -> str:
    (row,) = owned.fetch("SELECT pg_get_serial_sequence($1, 'seq') AS name", queue)
    name: str = row.name
    return name


def _role(dsn: str) -> str:
    return quote_name(str(conninfo_to_dict(dsn)["user"]))


def _database(owned: Endpoint) -> str:
    return quote_name(str(conninfo_to_dict(owned.dsn)["dbname"]))
