"""The rights that docs/sqlserver.md lists are enough; without one of them nothing is lost."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from duesweep.cli.app import main
from duesweep.core.address import SqlServerTable
from duesweep.drivers.sqlserver import OdbcDsn
from support.sqlserver_server import SqlServerEndpoint

PAGE = Path(__file__).parents[2] / "docs" / "sqlserver.md"
Capture = pytest.CaptureFixture[str]

DELAYED, OWN, BILLING, ERROR = "Sales.Orders.Delayed", "Sales.Orders", "Billing", "error"
JOURNAL = [
    f"duesweep_{name}"
    for name in ("sweeps", "journal", "attempts", "bindings", "changes", "pauses", "limits")
]
AT_THE_START = [
    *((right, DELAYED) for right in ("SELECT", "UPDATE", "DELETE")),
    *((right, table) for table in JOURNAL for right in ("SELECT", "INSERT", "UPDATE", "DELETE")),
    ("SELECT", ERROR),
    ("INSERT", ERROR),
]
QUEUES = [(right, queue) for queue in (OWN, BILLING) for right in ("SELECT", "INSERT")]
RIGHTS = [*AT_THE_START, *QUEUES]


@dataclass(frozen=True, slots=True)
class Sweeper:
    """A login with exactly the listed rights on the tables of `owned`."""

    owned: SqlServerEndpoint
    dsn: str
    user: str

    def change(self, verb: str, right: str, table: str) -> None:
        preposition = "TO" if verb == "GRANT" else "FROM"
        name = SqlServerTable(self.owned.server.database.name, self.owned.schema, table).sql
        self.owned.execute(
            f"{verb} {right} ON {name.partition('.')[2]} {preposition} [{self.user}]"
        )

    @property
    def file(self) -> str:
        more = {"retry__max_attempts": 1, "retry__error_queue": ERROR}
        return str(self.owned.config_file(store__dsn=self.dsn, **more))


@pytest.fixture
def sweeper(sqlserver_endpoint: SqlServerEndpoint) -> Iterator[Sweeper]:
    owned = sqlserver_endpoint.set_up(BILLING, retry__error_queue=ERROR)
    owned.delay_many(4, [BILLING, None])
    owned.delay("Nowhere")
    user, password = f"sweeper_{uuid.uuid4().hex[:12]}", f"Throw-away-{uuid.uuid4().hex}"
    owned.execute(f"CREATE LOGIN [{user}] WITH PASSWORD = '{password}'")
    try:
        owned.execute(f"CREATE USER [{user}] FOR LOGIN [{user}]")
        pairs = OdbcDsn.parse(owned.dsn).pairs
        sweeper = Sweeper(owned, OdbcDsn(pairs | {"uid": user, "pwd": password}).text(), user)
        for right, table in RIGHTS:
            sweeper.change("GRANT", right, table)
        yield sweeper
    finally:
        # A stand-in drops no user that has been granted something.
        owned.server.database.drop_tables()
        owned.execute(f"DROP USER IF EXISTS [{user}]")
        owned.execute(f"DROP LOGIN [{user}]")


def test_page_lists_these_rights() -> None:
    text = PAGE.read_text(encoding="utf-8")

    for line in (
        "`SELECT, UPDATE, DELETE` on the delayed table",
        "`SELECT, INSERT, UPDATE, DELETE` on the `duesweep_…` tables",
        "`SELECT, INSERT` on the queue tables; a user in each database that has some",
    ):
        assert line in text


def test_listed_rights_are_enough_for_a_sweep(sweeper: Sweeper, capsys: Capture) -> None:
    assert main(["sweep", "--json", "--config", sweeper.file]) == 3

    summary = json.loads(capsys.readouterr().out)
    assert (summary["dispatched"], summary["exhausted"]) == (4, 1)
    assert sweeper.owned.waiting() == []


@pytest.mark.parametrize(
    ("right", "table"), AT_THE_START, ids=[f"{right} {table}" for right, table in AT_THE_START]
)
def test_without_a_right_the_sweep_moves_nothing(
    right: str, table: str, sweeper: Sweeper, capsys: Capture
) -> None:
    sweeper.change("REVOKE", right, table)

    assert main(["sweep", "--config", sweeper.file]) == 2

    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert right in told.err
    assert len(sweeper.owned.waiting()) == 5
    sweeper.change("GRANT", right, table)
    assert main(["sweep", "--config", sweeper.file]) == 3
    assert sweeper.owned.waiting() == []


@pytest.mark.parametrize(("right", "queue"), QUEUES)
def test_without_a_right_on_a_queue_its_messages_stay(
    right: str, queue: str, sweeper: Sweeper, capsys: Capture
) -> None:
    sweeper.change("REVOKE", right, queue)

    assert main(["sweep", "--json", "--config", sweeper.file]) == 4

    summary = json.loads(capsys.readouterr().out)
    assert (summary["left"], summary["dispatched"], summary["exhausted"]) == (2, 2, 1)
    assert len(sweeper.owned.waiting()) == 2
    sweeper.change("GRANT", right, queue)
    assert main(["sweep", "--config", sweeper.file]) == 0
    assert sweeper.owned.waiting() == []
