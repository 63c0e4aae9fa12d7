"""`duesweep audit` finds each harm to store, journal and ledger by its name, and only that."""

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
from duesweep.ledger import rows
from duesweep.ledger.base import LedgerPiece
from duesweep.ledger.ledger import open_ledger
from duesweep_testing.builders import delayed_row
from support.endpoint import ON_BOTH_SERVERS, Endpoint
from support.sweeps import dispatch_without_settling

pytestmark = ON_BOTH_SERVERS


@dataclass(frozen=True, slots=True)
class Scene:
    """An endpoint with a healthy history: two sweeps, one of which exhausted messages, a cancelled
    and a restored message, a message in back-off, one that waits, and one that was cancelled and
    restored twice before it was delivered.
    """

    endpoint: Endpoint[Any]
    waiting: str
    returned: str

    def audit(self) -> tuple[int, dict[str, int]]:
        """The exit code, and how many findings each check has."""
        ran = self.endpoint.run("audit", "--json")
        assert (ran.document["exit_code"], ran.document["error"]) == (ran.code, None)
        return ran.code, {one["check"]: one["count"] for one in ran.document["findings"]}

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
        """Undo the changes of the ledger and of duesweep's own tables in the block."""
        ledger, copy = self.endpoint.folder / "ledger", self.endpoint.folder / "copy"
        shutil.copytree(ledger, copy)
        (counter,) = self.endpoint.attempts()
        yield
        shutil.rmtree(ledger)
        copy.rename(ledger)
        for name in ("journal", "sweeps"):
            self.endpoint.execute(f"DELETE FROM {self.endpoint.own_table(name)}")
        key = self.endpoint.server.kinds[self.endpoint.kind].key_text
        returned = f"{key} = '{self.returned}'"
        self.endpoint.execute(f"DELETE FROM {self.endpoint.delayed} WHERE {returned}")
        self.count_failures_of(counter)

    def count_failures_of(self, key: str) -> None:
        """Give the one retry counter to another message."""
        table = self.endpoint.own_table("attempts")
        self.endpoint.execute(f"UPDATE {table} SET message_key = '{key}'")

    def delivered(self, key: str | None = None) -> Any:
        """The tombstone of a delivered message."""
        of_it = "" if key is None else f" AND message_key = '{key}'"
        return self.rows("tombstones", f"outcome = 'dispatched'{of_it}").slice(0, 1)

    def of_one(self, name: str, condition: str = "true") -> str:
        """The condition that means the first of these rows."""
        key = self.rows(name, condition).to_pylist()[0]["message_key"]
        return f"{condition} AND message_key = '{key}'"

    def insert(self, name: str, columns: str, values: str) -> None:
        """Insert a row of a sweep into one of duesweep's own tables."""
        self.endpoint.execute(
            f"INSERT INTO {self.endpoint.own_table(name)} (sweep_id, {columns})"
            f" VALUES ('{uuid.uuid4()}', {values})"
        )


@pytest.fixture
def scene(endpoint: Endpoint[Any]) -> Scene:
    def run(*arguments: str, **settings: object) -> int:
        return endpoint.run(*arguments, **settings).code

    endpoint.set_up("Billing")
    endpoint.delay_many(6, ["Billing"])
    assert run("sweep", retry__max_attempts=1) == 0
    endpoint.delay_many(3, ["Nowhere"])
    endpoint.delay_many(2, ["Billing"])
    assert run("sweep", retry__max_attempts=1) == 3
    endpoint.delay_many(1, ["Nowhere"])
    # In back-off for longer than a test takes on any machine.
    assert run("sweep", retry__initial_seconds=3_600, retry__max_seconds=3_600) == 3
    (later,) = endpoint.load([replace(delayed_row("Billing"), due=endpoint.due_in(3600))])
    assert run("cancel", later.key) == run("restore", later.key) == 0
    others = set(endpoint.waiting())
    endpoint.delay(due_in_seconds=3600)
    for _ in range(2):
        (returned,) = set(endpoint.waiting()) - others
        assert run("cancel", returned) == run("restore", returned) == 0
    (returned,) = set(endpoint.waiting()) - others
    assert run("reschedule", returned, "--to", "2026-01-01T00:00:00Z") == 0
    assert run("sweep") in {0, 3}
    (waiting,) = endpoint.load([replace(delayed_row("Billing"), due=endpoint.due_in(7200))])
    return Scene(endpoint, waiting.key, returned)


def _of_unknown_sweep(scene: Scene) -> None:
    unknown = str(uuid.uuid4())
    scene.add("tombstones", scene.delivered(), sweep_id=unknown, message_key=unknown)


def _stored_again(scene: Scene) -> None:
    later = scene.endpoint.due_in(7200)
    row = replace(delayed_row("Billing"), key=scene.returned, due=later)
    scene.endpoint.server.store_again(scene.endpoint, row)


def _old_sweep(scene: Scene) -> None:
    source = Duesweep(scene.endpoint.config()).audit().source
    values = f"'{source}', '2020-01-01', '2020-01-01'"
    scene.insert("sweeps", "source, horizon, started_at", values)


TWICE, EXHAUSTED = {"tombstone-twice", "tombstone-unexpected"}, "exhausted = 3"
# The harms, and the checks that find them.
Harms = dict[str, tuple[Callable[[Scene], object], set[str]]]
LEDGER_HARMS: Harms = {
    "doubled tombstone": (lambda s: s.add("tombstones", s.delivered()), TWICE),
    "doubled tombstone of a returned message": (
        lambda s: s.add("tombstones", s.delivered(s.returned)), TWICE),
    "lost tombstone": (
        lambda s: s.table("tombstones").delete(s.of_one("tombstones", "outcome = 'dispatched'")),
        {"tombstone-missing"}),
    "waiting, but dispatched": (
        lambda s: s.add("tombstones", s.delivered(), message_key=s.waiting),
        {"stored-and-gone", "tombstone-unexpected"}),
    "wrong count": (
        lambda s: s.table("sweeps").update({"dispatched": "dispatched + 1"}, predicate=EXHAUSTED),
        {"sweep-sums"}),
    "wrong sum": (
        lambda s: s.table("sweeps").update({"found": "found + 1"}, predicate=EXHAUSTED),
        {"sweep-sums"}),
    "lost sweep": (lambda s: s.table("sweeps").delete(EXHAUSTED), {"sweep-missing"}),
    "doubled sweep": (lambda s: s.add("sweeps", s.rows("sweeps", EXHAUSTED)), {"sweep-twice"}),
    "tombstone of an unknown sweep": (_of_unknown_sweep, {"sweep-missing"}),
    "doubled error": (
        lambda s: s.add("errors", s.rows("errors").slice(0, 1)),
        {"error-twice", "error-unexpected"}),
    "lost error": (lambda s: s.table("errors").delete(s.of_one("errors")), {"error-missing"}),
    "changed outcome": (
        lambda s: s.table("tombstones").update(
            {"outcome": "'exhausted'"}, predicate=s.of_one("tombstones", "outcome = 'dispatched'")),
        {"outcome-differs"}),
    "lost cancelled message": (
        lambda s: s.table("changes").delete(s.of_one("changes", "change = 'cancelled'")),
        {"cancelled-differs"}),
}  # fmt: skip
STORE_HARMS: Harms = {
    "counter": (lambda s: s.count_failures_of(s.endpoint.server.absent_key), {"counter-left"}),
    "orphaned row": (
        lambda s: s.insert("journal", "slice, kind", "0, 'slice'"), {"journal-orphaned"}),
    "old sweep": (_old_sweep, {"journal-old"}),
    "returned message that is stored again": (_stored_again, {"stored-and-gone"}),
}  # fmt: skip


def test_healthy_history_has_no_findings(scene: Scene) -> None:
    assert scene.audit() == (0, {})
    ran = scene.endpoint.run("audit")
    assert (ran.code, "no differences." in ran.out) == (0, True)


def test_sweep_that_is_settled_in_part_is_not_judged(scene: Scene) -> None:
    scene.endpoint.delay_many(4, ["Billing"])
    context = scene.endpoint.context()
    with context.store.open_driver() as session:
        run = dispatch_without_settling(context, session)
        ledger = open_ledger(context.ledger_root, context.ledger_writer, None)
        session.sweeps.close(run.sweep_id, abandoned=False, remaining=0)
        session.journal.seal(run.sweep_id)
        row = rows.sweep(session.journal.summary(run.sweep_id)[0])
        ledger.tables.write([LedgerPiece("sweeps", row, run.sweep_id)])

        assert scene.audit() == (0, {})
        printed = scene.endpoint.run("audit").out
        assert "1 sweep or command not judged" in printed.splitlines()[0]
        assert "no differences" not in printed

    assert scene.endpoint.run("sweep").code == 0
    assert scene.audit() == (0, {})


@pytest.mark.parametrize("harms", [LEDGER_HARMS, STORE_HARMS], ids=["ledger", "store"])
def test_each_harm_is_found_by_its_name(scene: Scene, harms: Harms) -> None:
    found = {}
    for name, (harm, _) in harms.items():
        with scene.mended():
            harm(scene)
            code, found[name] = scene.audit()
            told = scene.endpoint.run("audit")
            assert (code, told.code, "→" in told.out) == (3, 3, True)

    assert found == {name: dict.fromkeys(checks, 1) for name, (_, checks) in harms.items()}
    assert scene.audit() == (0, {})


def test_audit_before_the_first_sweep_says_that_neither_is_there(endpoint: Endpoint) -> None:
    ran = endpoint.set_up("Billing").run("audit")

    assert ran.code == 2
    assert "belongs to no ledger yet, and no ledger is at" in ran.err
