"""`duesweep maintain`: removed rows, kept rows, and the output."""

import re
import uuid
from contextlib import redirect_stdout, suppress
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from duesweep import Duesweep
from support.commands import ROOT
from support.endpoint import ON_BOTH_SERVERS, Endpoint
from support.sweeps import dispatch_without_settling

pytestmark = ON_BOTH_SERVERS


def _maintained(endpoint: Endpoint[Any], *arguments: str, code: int = 0) -> Any:
    return endpoint.document("maintain", *arguments, code=code)


def _tick(endpoint: Endpoint[Any], times: int = 1) -> None:
    for _ in range(times):
        endpoint.delay_many(2, ["Billing"])
        assert endpoint.run("sweep").code == 0


def _make_old(endpoint: Endpoint[Any]) -> None:
    """Move all rows of the ledger into the past."""
    long_ago = datetime.now(UTC) - timedelta(days=40)
    for name, columns in (("tombstones", ["dispatched_at"]), ("sweeps", ["start", "end"])):
        table = DeltaTable(endpoint.folder / "ledger" / name)
        table.update(dict.fromkeys(columns, f"TIMESTAMP '{long_ago.isoformat()}'"))


def _ask(page: str) -> list[list[str]]:
    """The rows that the query of a page prints, after the columns' names and types. Empty: DuckDB
    cannot answer.
    """
    (query,) = re.findall(r"```python\n(import duckdb.*?)```", page, re.DOTALL)
    with redirect_stdout(StringIO()) as out, suppress(duckdb.Error):
        # The names that DuckDB looks up are the block's own globals.
        exec(compile(query, "page", "exec"), {"__name__": "page"})
    return _cells(out.getvalue())


def _cells(table: str) -> list[list[str]]:
    lines = [line.strip("│ ") for line in table.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.split("│")] for line in lines]


def test_query_of_the_readme_answers_as_shown_also_after_rows_were_cut(
    endpoint: Endpoint[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    monkeypatch.chdir(endpoint.folder)
    endpoint.set_up("Billing").delay_many(6, ["Billing", "Billing", "Nowhere"])
    assert endpoint.run("sweep", retry__max_attempts=1).code == 3
    _make_old(endpoint)
    # As a cut of an older version did, this leaves a file that DuckDB cannot filter.
    one, *_ = [row.message_key for row in endpoint.ledger.rows("tombstones") if row.queue]
    DeltaTable("ledger/tombstones").delete(f"message_key = '{one}'")
    assert _ask(readme) == []

    _maintained(endpoint)
    before = _ask(readme)
    endpoint.delay_many(3, ["Billing", "Billing", "Nowhere"])
    assert endpoint.run("sweep", retry__max_attempts=1).code == 3
    # Old and new rows are in one file, which is not written together with others after the cut.
    _maintained(endpoint)
    cut = _maintained(endpoint, "--set", "ledger.keep_days=30")
    after = _ask(readme)

    assert [one["rows_removed"] for one in cut["tables"] if one["table"] == "tombstones"] == [5]
    assert (before[:2], after[:2]) == (_cells(readme)[:2],) * 2
    assert [[row[1] for row in rows[2:]] for rows in (before, after)] == [["3"], ["2"]]
    table = DeltaTable("ledger/sweeps")
    assert table.to_pyarrow_table(filters=[("outcome", "=", "failures")]).num_rows == 1


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
    _make_old(endpoint)
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


def test_files_that_another_process_may_be_writing_are_not_deleted(endpoint: Endpoint) -> None:
    endpoint.set_up()

    ran = endpoint.run(
        *("maintain", "--set", "ledger.vacuum_days=0", "--set", "ledger.root=s3://bucket/ledger")
    )

    assert ran.code == 2
    assert "vacuum_days is 0: that could delete files" in ran.err
