"""The rights that the pages list are enough; without any one of them nothing is lost."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from duesweep.core.address import quote_name
from duesweep.stores.dialect import JOURNAL_TABLES
from duesweep.sweep.job import Engine
from support.diagnosis import diagnosed
from support.endpoint import ON_BOTH_SERVERS, Endpoint
from support.sweeps import run_sweep
from support.users import User, new_user

FOLDER = Path(__file__).parents[2]

JOURNAL = [f"duesweep_{name}" for name in JOURNAL_TABLES]
# The rights on the tables that wait for a sweep, on both servers.
ON_TABLES = [
    *(f"{right} ON {{Sales.Orders.Delayed}}" for right in ("SELECT", "UPDATE", "DELETE")),
    *(
        f"{right} ON {{{table}}}"
        for table in JOURNAL
        for right in ("SELECT", "INSERT", "UPDATE", "DELETE")
    ),
]
SETTINGS: Mapping[str, Any] = {"retry__max_attempts": 1, "retry__error_queue": "error"}
# The one check that finds fault with a database of the tests.
ACCEPTED = ("--ignore", "read-committed-snapshot")


@dataclass(frozen=True, slots=True)
class Page:
    """A page that lists rights in these `words`, and the rights; tables of the endpoint's schema
    are in braces. A sweep misses those `at_the_start` before it moves anything, and those
    `of_queues` only for the messages to one queue. It also uses the `others`.
    """

    file: str
    words: Sequence[str]
    at_the_start: Sequence[str]
    of_queues: Sequence[tuple[str, str]]
    others: Sequence[str] = ()
    billing: str = "Billing"
    schema: str | None = None

    @property
    def rights(self) -> Sequence[str]:
        return [*self.at_the_start, *(right for right, _ in self.of_queues), *self.others]


OWN, ELSEWHERE = "Sales.Orders", '"queues"."Billing"'
PAGES = {
    "postgresql": Page(
        "docs/security.md",
        [
            "| a sweep | the schemas | `USAGE` |",
            "| the delayed table | `SELECT, UPDATE, DELETE` |",
            "| the `duesweep_…` tables | `SELECT, INSERT, UPDATE, DELETE` |",
            "| the queue tables | `INSERT`, and `USAGE` on their sequences |",
        ],
        ["USAGE ON SCHEMA store", *ON_TABLES, "INSERT ON {error}"],
        [
            ("INSERT ON {Sales.Orders}", OWN),
            ("USAGE ON SEQUENCE {Sales.Orders_seq_seq}", OWN),
            (f"INSERT ON {ELSEWHERE}", ELSEWHERE),
            ('USAGE ON SEQUENCE "queues"."Billing_seq_seq"', ELSEWHERE),
            ("USAGE ON SCHEMA queues", ELSEWHERE),
        ],
        others=["USAGE ON SEQUENCE {error_seq_seq}"],
        billing=ELSEWHERE,
        schema="store",
    ),
    "sqlserver": Page(
        "docs/security.md",
        [
            "| `SELECT, UPDATE, DELETE` | `SELECT, UPDATE, DELETE` |",
            "| `SELECT, INSERT, UPDATE, DELETE` | `SELECT, INSERT, UPDATE, DELETE` |",
            "| `SELECT, INSERT`, and a user in each database |",
        ],
        [*ON_TABLES, "SELECT ON {error}", "INSERT ON {error}"],
        [
            ("SELECT ON {Sales.Orders}", OWN),
            ("INSERT ON {Sales.Orders}", OWN),
            ("SELECT ON {Billing}", "Billing"),
            ("INSERT ON {Billing}", "Billing"),
        ],
    ),
}
OF_QUEUES = [(server, *pair) for server, page in PAGES.items() for pair in page.of_queues]


@pytest.fixture
def owned(endpoint: Endpoint) -> Endpoint:
    """An endpoint with all its tables and messages, which the administrator made."""
    page = PAGES[endpoint.kind]
    owned = endpoint.named(OWN, page.schema).set_up(page.billing, retry__error_queue="error")
    if owned.kind == "postgresql":
        owned.execute("REVOKE ALL ON SCHEMA public, store, queues FROM PUBLIC")
        owned.execute(f"REVOKE TEMPORARY ON DATABASE {owned.server.admin.info.dbname} FROM PUBLIC")
    owned.delay_many(4, [page.billing, None])
    owned.delay("Nowhere")
    return owned


@pytest.fixture
def sweeper(owned: Endpoint) -> Iterator[User]:
    """A user with exactly the rights that the page lists."""
    with new_user(owned, *(_on(owned, right) for right in PAGES[owned.kind].rights)) as user:
        yield user


def _on(owned: Endpoint, right: str) -> str:
    return re.sub(r"\{(.+)\}", lambda table: owned.within(table[1]), right)


def _as(sweeper: User) -> Endpoint:
    return sweeper.endpoint.having(store__dsn=sweeper.dsn, **SETTINGS)


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_page_lists_these_rights(page: Page) -> None:
    text = " ".join((FOLDER / page.file).read_text(encoding="utf-8").split())

    for words in page.words:
        assert words in text


@pytest.mark.parametrize(
    ("endpoint", "engine"),
    [("postgresql", "in-process"), ("postgresql", "spark"), ("sqlserver", "in-process")],
    indirect=True,
)
def test_listed_rights_are_enough_for_sweep_settle_and_doctor(
    engine: Engine, owned: Endpoint, sweeper: User
) -> None:
    # The unknown queue is the message's fault, and the doctor says so.
    before = diagnosed(_as(sweeper).config_file(), *ACCEPTED)
    assert {check for check, _ in before.to_mend()} == {"table-exists"}

    summary = run_sweep(_as(sweeper), engine)

    assert (summary.dispatched, summary.exhausted, summary.outcome) == (4, 1, "failures")
    assert len(owned.ledger.rows("tombstones")) == 5
    assert len(owned.ledger.rows("errors")) == 1
    assert owned.waiting() == []
    assert owned.fetch(f"SELECT * FROM {owned.own_table('sweeps')}") == []
    assert diagnosed(_as(sweeper).config_file(), *ACCEPTED).code == 0


def test_printed_grants_are_enough_to_sweep(endpoint: Endpoint) -> None:
    # The names of a role, a queue and its sequence: the last is cut by the server.
    endpoint.execute("CREATE SCHEMA store")
    error_queue = 'it\'s an "error" $$ {0} ' + "é" * 18
    sweeper = str(endpoint.server.role("sw'ee\"p$$er {0} %s"))
    orders = endpoint.named(OWN, "store").having(**SETTINGS | {"retry__error_queue": error_queue})
    name = str(conninfo_to_dict(sweeper)["user"])
    printed = orders.run("setup", "--print-sql", "--grant-to", name)
    assert printed.code == 0

    orders.execute("REVOKE ALL ON SCHEMA public, store FROM PUBLIC")
    with psycopg.connect(orders.dsn) as administrator:
        administrator.execute(printed.out.encode())
    orders.delay_many(2, [None])
    orders.delay("Nowhere")
    own = orders.having(store__dsn=sweeper)
    summary = own.document("sweep", code=3)
    assert (summary["dispatched"], summary["exhausted"], summary["left"]) == (2, 1, 0)
    assert len(orders.queue_rows(orders.table(error_queue))) == 1
    assert diagnosed(own.config_file()).code == 0

    # The right in the printed comment on `queue send --delay`.
    send = ["queue", "send", OWN, "--delay", "1h"]
    assert own.run(*send).code != 0
    orders.execute(f"GRANT INSERT ON {orders.delayed} TO {quote_name(name)}")
    assert own.run(*send).code == 0


@ON_BOTH_SERVERS
def test_without_a_right_the_sweep_ends_before_it_moves_anything(
    owned: Endpoint, sweeper: User
) -> None:
    for right in PAGES[owned.kind].at_the_start:
        # All others are there: the doctor's statements have granted the one before it again.
        sweeper.revoke(_on(owned, right))

        told = _as(sweeper).run("sweep")

        verb, *_, thing = right.split()
        table = owned.table(thing.strip("{}")) if thing.startswith("{") else None
        assert (told.code, told.out) == (2, ""), right
        words = r"duesweep: .*([Rr]ight|[Gg]rant|permission|GRANT).*\n"
        assert re.fullmatch(words, told.err), told.err
        assert table is None or f"lacks {verb} on " in told.err, told.err
        assert thing.strip("{}") in told.err
        assert len(owned.waiting()) == 5
        assert not (owned.folder / "ledger").exists()
        _grant_as_the_doctor_says(sweeper, table)

    assert _as(sweeper).run("sweep").code == 3
    assert owned.waiting() == []


@pytest.mark.parametrize(("endpoint", "right", "queue"), OF_QUEUES, indirect=["endpoint"])
def test_without_a_right_on_a_queue_its_messages_stay_and_others_leave(
    right: str, queue: str, owned: Endpoint, sweeper: User
) -> None:
    table = queue if queue.startswith('"') else owned.table(queue)
    sweeper.revoke(_on(owned, right))

    summary = _as(sweeper).document("sweep", code=4)

    assert (summary["outcome"], summary["left"]) == ("incomplete", 2), summary
    assert re.search("permission.* denied", summary["reason"]), summary
    assert (summary["dispatched"], summary["exhausted"]) == (2, 1)
    assert len(owned.waiting()) == 2

    _grant_as_the_doctor_says(sweeper, table)
    assert _as(sweeper).run("sweep").code == 0
    assert owned.waiting() == []
    assert len(owned.queue_rows(queue)) == 2


def _grant_as_the_doctor_says(sweeper: User, table: str | None) -> None:
    """The doctor names the table whose rights are missing, and the statements that grant them."""
    found = diagnosed(_as(sweeper).config_file(), *ACCEPTED)
    lacking = {about for check, about in found.to_mend() if check == "table-rights"}
    assert found.code == 3
    assert lacking if table is None else lacking == {table}
    assert "Throw-away" not in found.text
    for statement in found.statements("table-rights"):
        sweeper.endpoint.execute(statement)


LOOKS = (
    *("list", "plan", "paused", "audit", "report --out -", "errors list"),
    *("list --failing", "show {key}"),
)


def test_reader_sees_all_with_the_right_to_read_and_no_other(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing").delay_many(3)
    assert endpoint.run("sweep").code == 0
    (key,) = endpoint.delay_many(1)
    tables = [endpoint.within(name) for name in ("Sales.Orders.Delayed", *JOURNAL)]
    with new_user(endpoint, *(f"SELECT ON {each}" for each in tables), suffix="reader") as reader:
        own = endpoint.having(store__dsn=reader.dsn)
        looks = [look.format(key=key).split() for look in LOOKS]
        for look in looks:
            ran = own.run(*look)
            assert (ran.code, "found by the doctor" in ran.told) == (0, False), (look, ran)
        # A sweep is refused, and the doctor names the missing rights.
        assert "lacks UPDATE, DELETE" in own.run("sweep").err
        assert diagnosed(own.config_file()).code == 3

        reader.revoke(*(f"SELECT ON {each}" for each in tables[1:3]))
        for look in looks:
            told = own.run(*look).told
            if look[0] not in {"errors", "report"}:
                assert f"lacks SELECT on {endpoint.table(JOURNAL[0])}, " in told, (look, told)
            assert not re.search("UPDATE|DELETE|found by the doctor", told), (look, told)


# docs/security.md.
READ = "| `list`, `show`, `errors list`, `errors show` | the delayed table, `duesweep_attempts`, "
READ += "`duesweep_bindings` | `SELECT` | `SELECT` |"


def test_messages_and_errors_are_shown_to_who_may_read_what_the_page_lists(
    endpoint: Endpoint,
) -> None:
    assert READ in (FOLDER / "docs/security.md").read_text("utf-8")
    endpoint.set_up("Billing").delay_many(1, ["Nowhere"])
    assert endpoint.run("sweep", retry__max_attempts=1).code == 3
    (key,) = endpoint.delay_many(1)
    names = ("Sales.Orders.Delayed", "duesweep_attempts", "duesweep_bindings")
    rights = [f"SELECT ON {endpoint.within(name)}" for name in names]
    with new_user(endpoint, *rights, suffix="reader") as reader:
        own = endpoint.having(store__dsn=reader.dsn)
        for look in ("list", "list --failing", "list --type *", f"show {key}", "errors list"):
            assert own.run(*look.split()).code == 0, look
        (group,) = own.document("errors", "list")["groups"]
        assert own.run("errors", "show", group["example"]["key"]).code == 0


@pytest.mark.parametrize(
    ("command", "most"),
    [
        ("subscriptions add Ordered Billing --subscriber Billing", 1),
        ('queue send "other"."Billing" --body x', 3),
    ],
    ids=["subscriptions", "a queue of another schema"],
)
def test_printed_statements_grant_what_a_command_lacks(
    command: str, most: int, endpoint: Endpoint
) -> None:
    endpoint.set_up("Billing")
    endpoint.create_queue('"other"."Billing"')
    with new_user(endpoint) as user:
        own = endpoint.having(store__dsn=user.dsn)
        for _ in range(most):
            ran = own.run(*command.split())
            assert ran.code == 2, ran
            endpoint.execute(ran.err[ran.err.index("GRANT") :])

        assert own.run(*command.split()).code == 0


@pytest.mark.parametrize("command", ["queue create Billing", "subscriptions create"])
def test_table_that_is_there_is_created_by_who_may_create_none(
    command: str, endpoint: Endpoint
) -> None:
    endpoint.set_up("Billing")
    with new_user(endpoint) as user:
        assert endpoint.run(*command.split(), store__dsn=user.dsn).code == 0


def test_sweepers_missing_right_is_a_fault_of_the_report(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing").delay_many(3)
    with new_user(endpoint, *(_on(endpoint, right) for right in ON_TABLES)) as sweeper:
        sweeper.revoke(_on(endpoint, "DELETE ON {Sales.Orders.Delayed}"))

        own = endpoint.having(store__dsn=sweeper.dsn)
        assert "found by the doctor" in own.run("report", "--out", "-").out
