"""`duesweep maintain`: what it removes, what it keeps, and what it says."""

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from deltalake import DeltaTable

from duesweep import Duesweep
from duesweep.cli.app import main
from support.endpoint import ON_BOTH_SERVERS, Endpoint
from support.faults.dead_sweeps import dispatch_without_settling
from support.ledger_reader import LedgerReader

Captured = pytest.CaptureFixture[str]
pytestmark = ON_BOTH_SERVERS


def _run(endpoint: Endpoint[Any], *arguments: str) -> int:
    return main([*arguments, "--config", str(endpoint.folder / "duesweep.toml")])


def _document(
    capsys: Captured, endpoint: Endpoint[Any], *arguments: str, code: int = 0
) -> dict[str, Any]:
    capsys.readouterr()
    assert _run(endpoint, "maintain", "--json", *arguments) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def _tick(endpoint: Endpoint[Any], times: int = 1) -> None:
    for _ in range(times):
        endpoint.delay_many(2, ["Billing"])
        assert _run(endpoint, "sweep") == 0


def test_small_files_are_compacted_and_old_ones_deleted(
    capsys: Captured, endpoint: Endpoint[Any], ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    _tick(endpoint, 3)
    folder = endpoint.folder / "ledger" / "tombstones"

    kept = _document(capsys, endpoint)
    files = len(list(folder.glob("*.parquet")))
    removed = _document(capsys, endpoint, "--set", "ledger.vacuum_days=0")

    tombstones = kept["tables"][0]
    assert (tombstones["table"], tombstones["before"]["files"]) == ("tombstones", 3)
    assert (tombstones["after"]["files"], tombstones["files_compacted"]) == (1, 3)
    # Readers of an earlier version may need them for a week.
    assert (tombstones["files_deleted"], files) == (0, 4)
    assert removed["tables"][0]["files_deleted"] == 3
    assert len(list(folder.glob("*.parquet"))) == 1
    assert len(ledger.rows("tombstones")) == 6
    assert kept["kept_from"] is None
    assert _run(endpoint, "audit") == 0


def test_rows_of_old_sweeps_are_removed_and_the_rest_still_adds_up(
    capsys: Captured, endpoint: Endpoint[Any], ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    _tick(endpoint, 2)
    long_ago = datetime.now(UTC) - timedelta(days=40)
    root = endpoint.folder / "ledger"
    for name, columns in (("tombstones", ["dispatched_at"]), ("sweeps", ["start", "end"])):
        table = DeltaTable(root / name)
        table.update(dict.fromkeys(columns, f"TIMESTAMP '{long_ago.isoformat()}'"))
    _tick(endpoint)

    report = _document(capsys, endpoint, "--set", "ledger.keep_days=30")

    rows = {one["table"]: one["rows_removed"] for one in report["tables"]}
    assert rows == {"tombstones": 4, "errors": 0, "retries": 0, "sweeps": 2}
    kept_from = datetime.fromisoformat(report["kept_from"])
    assert abs(datetime.now(UTC) - timedelta(days=30) - kept_from) < timedelta(minutes=5)
    assert (len(ledger.rows("tombstones")), len(ledger.rows("sweeps"))) == (2, 1)
    assert Duesweep(endpoint.config()).audit().suspects == []
    # Nothing more is old, and what follows is written and read as before.
    assert {t["rows_removed"] for t in _document(capsys, endpoint)["tables"]} == {0}
    _tick(endpoint)
    assert _run(endpoint, "audit") == 0
    assert _run(endpoint, "plan") == 0


def test_what_a_dead_sweep_left_is_settled_and_counters_of_gone_messages_are_removed(
    capsys: Captured, endpoint: Endpoint[Any], ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    _tick(endpoint)
    endpoint.delay_many(1, ["Nowhere"])
    assert _run(endpoint, "sweep") == 3
    endpoint.delay_many(4, ["Billing"])
    context = endpoint.context()
    with context.store.open_driver() as session:
        dispatch_without_settling(context, session)
    endpoint.execute(f"DELETE FROM {endpoint.delayed}")
    assert len(endpoint.attempts()) == len(ledger.rows("retries")) == 1

    report = _document(capsys, endpoint)

    assert (report["settled"], report["counters_removed"]) == (1, 1)
    assert len(ledger.rows("tombstones")) == 6
    assert (endpoint.attempts(), ledger.rows("retries")) == ({}, [])
    assert _run(endpoint, "audit") == 0


def test_source_is_forgotten_where_its_table_is_gone_and_somebody_says_so(
    capsys: Captured, endpoint: Endpoint[Any]
) -> None:
    endpoint.set_up("Billing")
    _tick(endpoint)
    table = endpoint.own_table("bindings")
    (row,) = endpoint.fetch(f"SELECT source FROM {table}")
    gone = endpoint.server.sql(endpoint.schema, "Old.Delayed")
    endpoint.execute(
        f"INSERT INTO {table} (source, delayed, ledger_id)"
        f" VALUES ('Old', '{gone}', '{uuid.uuid4()}')"
    )
    pauses = endpoint.own_table("pauses")
    endpoint.execute(
        f"INSERT INTO {pauses} (source, pattern, given_by, reason) VALUES ('Old', '*', 'x', 'x')"
    )

    told = _document(capsys, endpoint)
    refused = _document(capsys, endpoint, "--forget", row.source, code=2)
    sweeps = endpoint.own_table("sweeps")
    endpoint.execute(
        f"INSERT INTO {sweeps} (sweep_id, source, horizon)"
        f" VALUES ('{uuid.uuid4()}', 'Old', '2020-01-01')"
    )
    unsettled = _document(capsys, endpoint, "--forget", "Old", code=2)
    endpoint.execute(f"DELETE FROM {sweeps} WHERE source = 'Old'")
    done = _document(capsys, endpoint, "--forget", "Old")

    assert [one["source"] for one in told["dropped"]] == ["Old"]
    assert told["rows_forgotten"] == 0
    assert "these are: Old" in refused["error"]
    assert "1 sweeps or commands that its ledger may lack" in unsettled["error"]
    assert done["rows_forgotten"] == 2
    assert _document(capsys, endpoint)["dropped"] == []


def test_people_are_told_what_was_done(capsys: Captured, endpoint: Endpoint[Any]) -> None:
    endpoint.set_up("Billing")
    _tick(endpoint)
    capsys.readouterr()

    assert _run(endpoint, "maintain") == 0

    out = capsys.readouterr().out
    assert out.split()[:2] == ["table", "files"]
    assert "settled 0 sweeps and commands of dead processes, removed 0 retry counters." in out
