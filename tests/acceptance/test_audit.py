"""`duesweep audit` finds each harm to store, journal and ledger by its name, and nothing else."""

import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from duesweep import Duesweep
from duesweep.cli.app import main
from duesweep.ledger import rows
from duesweep.ledger.base import LedgerPiece
from duesweep.ledger.opening import open_ledger
from duesweep_testing.builders import delayed_row
from support.endpoint import ON_BOTH_SERVERS, Endpoint
from support.faults.dead_sweeps import dispatch_without_settling

Captured = pytest.CaptureFixture[str]
pytestmark = ON_BOTH_SERVERS


@dataclass(frozen=True, slots=True)
class Scene:
    """An endpoint with a healthy history: two sweeps, one of which exhausted messages, a cancelled
    and a restored message, a message in back-off, one that waits, and one that was cancelled and
    restored twice before it was delivered.
    """

    endpoint: Endpoint[Any]
    waiting: str
    returned: str = ""

    def run(self, *arguments: str) -> int:
        return main([*arguments, "--config", str(self.endpoint.folder / "duesweep.toml")])

    def table(self, name: str) -> DeltaTable:
        return DeltaTable(self.endpoint.folder / "ledger" / name)

    def rows(self, name: str, condition: str = "true") -> Any:
        query = QueryBuilder().register("t", self.table(name))
        return pa.table(query.execute(f"SELECT * FROM t WHERE {condition}").read_all())

    def add(self, name: str, rows: Any, **changes: object) -> None:
        """Append these rows to a table, with other values."""
        table = self.table(name)
        changed = [row | changes for row in rows.to_pylist()]
        schema = pa.schema(table.schema().to_arrow())
        write_deltalake(table, pa.Table.from_pylist(changed, schema=schema), mode="append")

    @contextmanager
    def mended(self) -> Iterator[None]:
        """Undo what is done to the ledger and to duesweep's own tables in the block."""
        ledger, copy = self.endpoint.folder / "ledger", self.endpoint.folder / "copy"
        shutil.copytree(ledger, copy)
        (counter,) = self.endpoint.attempts()
        yield
        shutil.rmtree(ledger)
        copy.rename(ledger)
        for name in ("journal", "sweeps"):
            self.endpoint.execute(f"DELETE FROM {self.endpoint.own_table(name)}")
        returned = f"id = '{self.returned}'"
        self.endpoint.execute(f"DELETE FROM {self.endpoint.delayed} WHERE {returned}")
        table = self.endpoint.own_table("attempts")
        self.endpoint.execute(f"UPDATE {table} SET message_key = '{counter}'")

    def first(self, condition: str) -> Any:
        return self.rows("tombstones", condition).slice(0, 1)

    def key(self, condition: str) -> str:
        return str(self.first(condition).to_pylist()[0]["message_key"])


@pytest.fixture
def scene(endpoint: Endpoint[Any], capsys: Captured) -> Scene:
    endpoint.set_up("Billing")
    endpoint.config_file(retry__max_attempts=1)
    scene = Scene(endpoint, "")
    endpoint.delay_many(6, ["Billing"])
    assert scene.run("sweep") == 0
    endpoint.delay_many(3, ["Nowhere"])
    endpoint.delay_many(2, ["Billing"])
    assert scene.run("sweep") == 3
    # In back-off for longer than a test takes on any machine.
    back_off = {"retry__initial_seconds": 3_600, "retry__max_seconds": 3_600}
    endpoint.config_file(retry__max_attempts=5, **back_off)
    endpoint.delay_many(1, ["Nowhere"])
    assert scene.run("sweep") == 3
    (later,) = endpoint.load([replace(delayed_row("Billing"), due=endpoint.due_in(3600))])
    assert scene.run("cancel", later.key, "--yes") == 0
    assert scene.run("restore", later.key, "--yes") == 0
    others = set(endpoint.waiting())
    endpoint.delay(due_in_seconds=3600)
    for _ in range(2):
        (returned,) = set(endpoint.waiting()) - others
        assert scene.run("cancel", returned, "--yes") == 0
        assert scene.run("restore", returned, "--yes") == 0
    (returned,) = set(endpoint.waiting()) - others
    past = ("--to", "2026-01-01T00:00:00Z")
    assert scene.run("reschedule", returned, *past, "--yes") == 0
    assert scene.run("sweep") in {0, 3}
    (waiting,) = endpoint.load([replace(delayed_row("Billing"), due=endpoint.due_in(7200))])
    capsys.readouterr()
    return Scene(endpoint, waiting.key, returned)


def _audit(scene: Scene, capsys: Captured) -> tuple[int, dict[str, int]]:
    capsys.readouterr()
    code = scene.run("audit", "--json")
    document = json.loads(capsys.readouterr().out)
    assert (document["exit_code"], document["error"]) == (code, None)
    return code, {one["check"]: one["count"] for one in document["findings"]}


def _doubled_tombstone(scene: Scene) -> None:
    scene.add("tombstones", scene.first("outcome = 'dispatched'"))


def _doubled_tombstone_of_a_returned_message(scene: Scene) -> None:
    of_it = f"outcome = 'dispatched' AND message_key = '{scene.returned}'"
    scene.add("tombstones", scene.first(of_it))


def _returned_message_that_is_stored_again(scene: Scene) -> None:
    later = scene.endpoint.due_in(7200)
    scene.endpoint.load([replace(delayed_row("Billing"), key=scene.returned, due=later)])


def _lost_tombstone(scene: Scene) -> None:
    key = scene.key("outcome = 'dispatched'")
    scene.table("tombstones").delete(f"message_key = '{key}'")


def _waiting_but_dispatched(scene: Scene) -> None:
    scene.add("tombstones", scene.first("outcome = 'dispatched'"), message_key=scene.waiting)


def _counter(scene: Scene) -> None:
    table = scene.endpoint.own_table("attempts")
    absent = scene.endpoint.server.absent_key
    scene.endpoint.execute(f"UPDATE {table} SET message_key = '{absent}'")


def _orphaned_row(scene: Scene) -> None:
    table = scene.endpoint.own_table("journal")
    scene.endpoint.execute(
        f"INSERT INTO {table} (sweep_id, slice, kind) VALUES ('{uuid.uuid4()}', 0, 'slice')"
    )


def _old_sweep(scene: Scene) -> None:
    table = scene.endpoint.own_table("sweeps")
    source = Duesweep(scene.endpoint.config()).audit().source
    scene.endpoint.execute(
        f"INSERT INTO {table} (sweep_id, source, horizon, started_at)"
        f" VALUES ('{uuid.uuid4()}', '{source}', '2020-01-01', '2020-01-01')"
    )


def _wrong_count(scene: Scene) -> None:
    scene.table("sweeps").update({"dispatched": "dispatched + 1"}, predicate="exhausted = 3")


def _wrong_sum(scene: Scene) -> None:
    scene.table("sweeps").update({"found": "found + 1"}, predicate="exhausted = 3")


def _lost_sweep(scene: Scene) -> None:
    scene.table("sweeps").delete("exhausted = 3")


def _doubled_sweep(scene: Scene) -> None:
    scene.add("sweeps", scene.rows("sweeps", "exhausted = 3"))


def _tombstone_of_unknown_sweep(scene: Scene) -> None:
    unknown = str(uuid.uuid4())
    scene.add(
        "tombstones", scene.first("outcome = 'dispatched'"), sweep_id=unknown, message_key=unknown
    )


def _doubled_error(scene: Scene) -> None:
    scene.add("errors", scene.rows("errors").slice(0, 1))


def _lost_error(scene: Scene) -> None:
    key = scene.rows("errors").to_pylist()[0]["message_key"]
    scene.table("errors").delete(f"message_key = '{key}'")


def _changed_outcome(scene: Scene) -> None:
    key = scene.key("outcome = 'dispatched'")
    scene.table("tombstones").update({"outcome": "'exhausted'"}, predicate=f"message_key = '{key}'")


def _lost_cancelled(scene: Scene) -> None:
    key = scene.rows("changes", "change = 'cancelled'").to_pylist()[0]["message_key"]
    scene.table("changes").delete(f"change = 'cancelled' AND message_key = '{key}'")


Harm = Callable[[Scene], None]
LEDGER_HARMS: dict[Harm, set[str]] = {
    _doubled_tombstone: {"tombstone-twice", "tombstone-unexpected"},
    _doubled_tombstone_of_a_returned_message: {"tombstone-twice", "tombstone-unexpected"},
    _lost_tombstone: {"tombstone-missing"},
    _waiting_but_dispatched: {"stored-and-gone", "tombstone-unexpected"},
    _wrong_count: {"sweep-sums"},
    _wrong_sum: {"sweep-sums"},
    _lost_sweep: {"sweep-missing"},
    _doubled_sweep: {"sweep-twice"},
    _tombstone_of_unknown_sweep: {"sweep-missing"},
    _doubled_error: {"error-twice", "error-unexpected"},
    _lost_error: {"error-missing"},
    _changed_outcome: {"outcome-differs"},
    _lost_cancelled: {"cancelled-differs"},
}
STORE_HARMS: dict[Harm, set[str]] = {
    _counter: {"counter-left"},
    _orphaned_row: {"journal-orphaned"},
    _old_sweep: {"journal-old"},
    _returned_message_that_is_stored_again: {"stored-and-gone"},
}


def test_healthy_history_has_no_findings(scene: Scene, capsys: Captured) -> None:
    assert _audit(scene, capsys) == (0, {})
    assert scene.run("audit") == 0
    assert "all of it agrees." in capsys.readouterr().out


def test_sweep_that_is_settled_in_part_is_not_judged(scene: Scene, capsys: Captured) -> None:
    scene.endpoint.delay_many(4, ["Billing"])
    context = scene.endpoint.context()
    with context.store.open_driver() as session:
        run = dispatch_without_settling(context, session)
        ledger = open_ledger(context.ledger_root, context.ledger_writer, None)
        session.close_sweep(run.sweep_id, abandoned=False, remaining=0)
        session.seal(run.sweep_id)
        row = rows.sweep(session.summary(run.sweep_id)[0])
        ledger.tables.append("sweeps", [LedgerPiece(row, run.sweep_id)])

        assert _audit(scene, capsys) == (0, {})

    assert scene.run("sweep") == 0
    assert _audit(scene, capsys) == (0, {})


@pytest.mark.parametrize("harms", [LEDGER_HARMS, STORE_HARMS], ids=["ledger", "store"])
def test_each_harm_is_found_by_its_name(
    scene: Scene, capsys: Captured, harms: dict[Harm, set[str]]
) -> None:
    found = {}
    for harm in harms:
        with scene.mended():
            harm(scene)
            code, found[harm] = _audit(scene, capsys)
            assert (code, scene.run("audit")) == (3, 3)
            assert "→" in capsys.readouterr().out

    assert found == {harm: dict.fromkeys(names, 1) for harm, names in harms.items()}
    assert _audit(scene, capsys) == (0, {})
