"""What commit d91097e left in a journal and a ledger is read, settled, audited and replayed."""

import hashlib
import json
import lzma
import re
import tarfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from support.commands import Ran, run
from support.endpoint import ON_BOTH_SERVERS, Endpoint

_FIXTURES = Path(__file__).parents[1] / "fixtures" / "d91097e"
_LIMIT = '[[limit]]\ndestination = "Shipping"\nper_second = 1000\n'
_LONG = 150
# An open sweep ends when it is settled.
_ENDS = {"end", "rows_per_second"}

pytestmark = ON_BOTH_SERVERS


@dataclass(frozen=True)
class Old:
    """An endpoint whose tables and ledger d91097e wrote. `unsettled` are the ids of its sweeps and
    of its command that were not settled; `told` is what d91097e said of them, and `settled` the
    rows that it settled them to.
    """

    endpoint: Endpoint[Any]
    unsettled: dict[str, str]
    told: dict[str, Any]
    settled: dict[str, list[dict[str, Any]]]

    def run(self, *arguments: str) -> Ran:
        return run(*arguments, "--config", str(self.endpoint.folder / "duesweep.toml"))

    def document(self, *arguments: str, code: int = 0) -> Any:
        ran = self.run(*arguments, "--json")
        assert ran.code == code, ran
        return ran.document

    def rows(self, table: str) -> list[dict[str, Any]]:
        """A table of the ledger, as expected.jsonl.xz has it."""
        query = QueryBuilder().register("t", DeltaTable(self.endpoint.folder / "ledger" / table))
        found = pa.table(query.execute("SELECT * FROM t").read_all())
        rows = map(_plain, found.to_pylist(maps_as_pydicts="strict"))
        return sorted(rows, key=json.dumps)

    def journalled(self) -> list[int]:
        """How many rows belong to sweeps and commands that are not settled."""
        tables = (self.endpoint.own_table(name) for name in ("sweeps", "journal", "changes"))
        return [self.endpoint.fetch(f"SELECT COUNT(*) AS n FROM {t}")[0].n for t in tables]


@pytest.fixture(params=["delta-rs", "spark"])
def old(request: pytest.FixtureRequest, endpoint: Endpoint[Any]) -> Old:
    """As both of its writers left the ledger."""
    folder = _FIXTURES / endpoint.kind / request.param
    endpoint.server.create_schema(endpoint.schema)
    _execute(endpoint, folder.parent / "tables.sql")
    _execute(endpoint, folder / "rows.sql")
    with tarfile.open(folder / "ledger.tar.xz") as archive:
        # Python has filters since 3.11.4, and asks for one from 3.12 on; the archive is our own.
        checked = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(endpoint.folder / "ledger", **checked)
    _make_young(endpoint)
    configuration = endpoint.config_file(store__name="sales")
    configuration.write_text(configuration.read_text() + _LIMIT)
    for queue in ("Billing", "Shipping", "Later"):
        endpoint.create_queue(queue)
    with lzma.open(folder / "expected.jsonl.xz", "rt", encoding="utf-8") as file:
        first, *lines = map(json.loads, file)
    settled: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        if "table" in line:
            settled.setdefault(line["table"], []).append(line["row"])
    told = {line["command"]: line["told"] for line in lines if "command" in line}
    del told["list"]["now"]
    return Old(endpoint, first["unsettled"], told, settled)


def _execute(endpoint: Endpoint[Any], file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    if endpoint.kind == "postgresql":
        endpoint.execute(text)
        return
    named = text.replace("{database}", endpoint.server.database.name)
    for batch in named.replace("{schema}", endpoint.schema).split("\nGO\n"):
        # Without the counts, which have to be fetched before the next statement runs.
        endpoint.execute(f"SET NOCOUNT ON;\n{batch}")


def _make_young(endpoint: Endpoint[Any]) -> None:
    """Move the moments by which something is too old to be settled; else these tests would fail
    after the hundredth day.
    """
    sweeps, past = endpoint.own_table("sweeps"), endpoint.server.past
    endpoint.execute(f"UPDATE {sweeps} SET sealed_at = {past} WHERE sealed_at IS NOT NULL")
    now_ms = int(time.time() * 1_000)
    for file in (endpoint.folder / "ledger").glob("*/_delta_log/*.json"):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        for action in actions:
            if "txn" in action:
                action["txn"]["lastUpdated"] = now_ms
        file.write_text("".join(json.dumps(action) + "\n" for action in actions))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _as_json(value) for name, value in row.items() if value is not None}


def _as_json(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, str) and len(value) > _LONG:
        return hashlib.sha256(value.encode()).hexdigest()
    return value


def test_it_is_read_and_audited_as_by_d91097e(old: Old) -> None:
    for command, told in old.told.items():
        now = old.document(*command.split(), code=told.get("exit_code", 0))

        # It may say more by now, and give advice in other words.
        assert _without_advice({name: now[name] for name in told}) == _without_advice(told)

    for group in old.told["errors list"]["groups"]:
        shown = old.run("show", group["example"]["key"])
        assert (shown.code, group["example"]["error_text"] in shown.out) == (0, True)


def _without_advice(document: dict[str, Any]) -> dict[str, Any]:
    findings = document.get("findings", [])
    return document | {
        "findings": [finding | {"advice": bool(finding["advice"])} for finding in findings]
    }


@pytest.mark.parametrize("command", ["setup", "doctor", "errors list", "audit", "list", "paused"])
def test_any_command_may_be_the_first(command: str, old: Old) -> None:
    told = old.run(*command.split())

    # The doctor misses queues.
    code = 3 if command == "doctor" else old.told.get(command, {}).get("exit_code", 0)
    assert told.code == code, told
    assert not re.search("^fault.*duesweep_(?!test_)", told.out, re.MULTILINE)
    assert old.document("maintain")["settled"] == len(old.unsettled)


def test_a_command_completes_it_and_setup_finds_it_complete(old: Old) -> None:
    assert old.run("paused").code == 0

    done = old.run("setup")

    assert (done.code, "duesweep_" in done.out) == (0, False), done


def test_report_and_plan_read_it(old: Old) -> None:
    page = old.endpoint.folder / "report.html"

    assert old.run("report", "--out", str(page)).code == 0
    assert "QueueNotFoundError" in page.read_text(encoding="utf-8")
    held = {one["what"]: one["messages"] for one in old.document("plan")["held_back"]}
    assert held["Paused*"] == 1


def test_what_was_not_settled_is_settled_as_d91097e_did(old: Old) -> None:
    before = {table: old.rows(table) for table in old.settled}
    assert 0 not in old.journalled()

    done = old.document("maintain")

    assert (done["settled"], old.journalled()) == (len(old.unsettled), [0, 0, 0])
    ids = set(old.unsettled.values())
    for table, expected in old.settled.items():
        rows = old.rows(table)
        new = [row for row in rows if table == "retries" or row["sweep_id"] in ids]
        assert [_settled(row, old) for row in new] == [_settled(row, old) for row in expected]
        if table != "retries":
            earlier = [row for row in before[table] if row["sweep_id"] not in ids]
            assert [row for row in rows if row["sweep_id"] not in ids] == earlier != []
    assert old.document("audit")["findings"] == []


def _settled(row: dict[str, Any], old: Old) -> dict[str, Any]:
    is_ended_now = row.get("sweep_id") == old.unsettled["open"] and "end" in row
    return {n: v for n, v in row.items() if not (is_ended_now and n in _ENDS)}


def test_what_failed_or_was_cancelled_is_delivered_or_restored_once(old: Old) -> None:
    old.endpoint.create_queue("Nowhere")
    old.endpoint.end_back_off()
    waited = set(old.endpoint.waiting())
    assert old.document("sweep")["dispatched"] == 2
    assert len(old.endpoint.queue_rows("Nowhere")) == 2

    again = ("--destination", "Nowhere", "--reason", "it is there", "--yes")
    replayed = [old.document("errors", "replay", *again)["changed"] for _ in range(2)]
    assert old.document("sweep")["dispatched"] == 3
    cancelled = [row["message_key"] for row in old.rows("changes") if row["change"] == "cancelled"]
    restored = [
        old.run("restore", *cancelled, "--reason", "needed", "--yes").code for _ in range(2)
    ]

    assert (replayed, len(old.endpoint.queue_rows("Nowhere"))) == ([3, 0], 5)
    assert (len(cancelled), restored) == (2, [0, 3])
    assert len(set(old.endpoint.waiting()) - waited) == 2
    assert old.endpoint.attempts() == {}
    assert old.document("audit")["findings"] == []
