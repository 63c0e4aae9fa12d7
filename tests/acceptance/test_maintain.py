"""`duesweep maintain`: removed rows, kept rows, and the output."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from deltalake import DeltaTable

from duesweep import Duesweep
from support.endpoint import ON_BOTH_SERVERS, Endpoint
from support.sweeps import dispatch_without_settling

pytestmark = ON_BOTH_SERVERS


def _maintained(endpoint: Endpoint[Any], *arguments: str, code: int = 0) -> Any:
    return endpoint.document("maintain", *arguments, code=code)


def _tick(endpoint: Endpoint[Any], times: int = 1) -> None:
    for _ in range(times):
        endpoint.delay_many(2, ["Billing"])
        assert endpoint.run("sweep").code == 0


def test_small_files_are_compacted_and_old_ones_deleted(
    endpoint: Endpoint[Any],
) -> None:
    _tick(endpoint.set_up("Billing"), 3)
    folder = endpoint.folder / "ledger" / "tombstones"

    kept = _maintained(endpoint)
    files = len(list(folder.glob("*.parquet")))
    removed = _maintained(endpoint, "--set", "ledger.vacuum_days=0")

    tombstones = kept["tables"][0]
    assert (tombstones["table"], tombstones["before"]["files"]) == ("tombstones", 3)
    assert (tombstones["after"]["files"], tombstones["files_compacted"]) == (1, 3)
    # Readers of an earlier version may need them for a week.
    assert (tombstones["files_deleted"], files) == (0, 4)
    assert removed["tables"][0]["files_deleted"] == 3
    assert len(list(folder.glob("*.parquet"))) == 1
    assert len(endpoint.ledger.rows("tombstones")) == 6
    assert kept["kept_from"] is None
    assert endpoint.run("audit").code == 0


def test_rows_of_old_sweeps_are_removed_and_the_rest_still_adds_up(
    endpoint: Endpoint[Any],
) -> None:
    _tick(endpoint.set_up("Billing"), 2)
    long_ago = datetime.now(UTC) - timedelta(days=40)
    root = endpoint.folder / "ledger"
    for name, columns in (("tombstones", ["dispatched_at"]), ("sweeps", ["start", "end"])):
        table = DeltaTable(root / name)
        table.update(dict.fromkeys(columns, f"TIMESTAMP '{long_ago.isoformat()}'"))
    _tick(endpoint)

    report = _maintained(endpoint, "--set", "ledger.keep_days=30")

    rows = {one["table"]: one["rows_removed"] for one in report["tables"]}
    assert rows == {"tombstones": 4, "errors": 0, "retries": 0, "sweeps": 2}
    kept_from = datetime.fromisoformat(report["kept_from"])
    assert abs(datetime.now(UTC) - timedelta(days=30) - kept_from) < timedelta(minutes=5)
    assert (len(endpoint.ledger.rows("tombstones")), len(endpoint.ledger.rows("sweeps"))) == (2, 1)
    assert Duesweep(endpoint.config()).audit().suspects == []
    # Nothing more is old, and later rows are written and read as before.
    assert {t["rows_removed"] for t in _maintained(endpoint)["tables"]} == {0}
    _tick(endpoint)
    assert endpoint.run("audit").code == 0
    assert endpoint.run("plan").code == 0


def test_what_a_dead_sweep_left_is_settled_and_counters_of_gone_messages_are_removed(
    endpoint: Endpoint[Any],
) -> None:
    _tick(endpoint.set_up("Billing"))
    endpoint.delay_many(1, ["Nowhere"])
    assert endpoint.run("sweep").code == 3
    endpoint.delay_many(4, ["Billing"])
    context = endpoint.context()
    with context.store.open_driver() as session:
        dispatch_without_settling(context, session)
    endpoint.execute(f"DELETE FROM {endpoint.delayed}")
    assert len(endpoint.attempts()) == len(endpoint.ledger.rows("retries")) == 1

    report = _maintained(endpoint)

    assert (report["settled"], report["counters_removed"]) == (1, 1)
    assert len(endpoint.ledger.rows("tombstones")) == 6
    assert (endpoint.attempts(), endpoint.ledger.rows("retries")) == ({}, [])
    assert endpoint.run("audit").code == 0


def test_source_is_forgotten_where_its_table_is_gone_and_somebody_says_so(
    endpoint: Endpoint[Any],
) -> None:
    _tick(endpoint.set_up("Billing"))
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

    told = _maintained(endpoint)
    refused = _maintained(endpoint, "--forget", row.source, code=2)
    sweeps = endpoint.own_table("sweeps")
    endpoint.execute(
        f"INSERT INTO {sweeps} (sweep_id, source, horizon)"
        f" VALUES ('{uuid.uuid4()}', 'Old', '2020-01-01')"
    )
    unsettled = _maintained(endpoint, "--forget", "Old", code=2)
    endpoint.execute(f"DELETE FROM {sweeps} WHERE source = 'Old'")
    done = _maintained(endpoint, "--forget", "Old")

    assert [one["source"] for one in told["dropped"]] == ["Old"]
    assert told["rows_forgotten"] == 0
    assert "without one: Old" in refused["error"]
    assert "1 sweeps or commands that its ledger may lack" in unsettled["error"]
    assert done["rows_forgotten"] == 2
    assert _maintained(endpoint)["dropped"] == []
