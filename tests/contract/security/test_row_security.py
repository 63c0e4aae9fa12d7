"""Row-level security that hides rows, or refuses some, is refused: a store would look empty. A
policy that does neither for the sweeper is accepted.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from duesweep.core.address import SqlServerTable
from duesweep.stores.checks_sqlserver import SQL_SERVER_TABLES
from duesweep.stores.dialect import WantedTable
from support.diagnosis import diagnosed
from support.endpoint import Endpoint
from support.rows import RecordedSession
from support.users import User, new_user

WHOLE = ("ALL ON ALL TABLES IN SCHEMA public", "ALL ON ALL SEQUENCES IN SCHEMA public")
READERS = ("list", "plan", "paused", "audit", "maintain", "cancel --all --reason x --yes", "show x")
TABLES = ("Sales.Orders.Delayed", "duesweep_bindings", "duesweep_attempts", "error")


@pytest.fixture
def sweeper(endpoint: Endpoint) -> Iterator[User]:
    endpoint.set_up("Billing", "Shipping", "error").delay_many(3)
    with new_user(endpoint, *WHOLE) as user:
        yield user


def _as(user: User) -> Endpoint[Any]:
    return user.endpoint.having(store__dsn=user.dsn, retry__error_queue="error")


def _secure(user: User, table: str, *policies: str) -> None:
    user.endpoint.execute(f'ALTER TABLE "{table}" ENABLE ROW LEVEL SECURITY')
    for number, policy in enumerate(policies):
        user.endpoint.execute(f'CREATE POLICY p{number} ON "{table}" {policy}')


@pytest.mark.parametrize("table", TABLES)
def test_hidden_rows_end_a_sweep_at_its_start_and_the_printed_statement_helps(
    table: str, sweeper: User
) -> None:
    _secure(sweeper, table)
    endpoint = _as(sweeper)

    ran = endpoint.run("sweep")

    assert ran.code == 2, ran
    assert f'Row-level security hides or refuses rows of "public"."{table}"' in ran.err
    assert f"ALTER ROLE {sweeper.name} BYPASSRLS" in ran.err
    assert len(endpoint.waiting()) == 3
    found = diagnosed(endpoint.config_file())
    assert (found.code, found.of("row-security")["about"]) == (3, f'"public"."{table}"')
    for statement in found.of("row-security")["statements"]:
        endpoint.execute(statement)
    assert endpoint.document("sweep")["dispatched"] == 3
    assert diagnosed(endpoint.config_file()).to_mend() == {}


def test_command_that_would_see_an_empty_store_is_refused(sweeper: User) -> None:
    _secure(sweeper, "Sales.Orders.Delayed", "USING (due < now())")

    for command in READERS:
        ran = _as(sweeper).run(*command.split())
        assert (ran.code, "Row-level security" in ran.err) == (2, True), ran


def test_report_and_watch_say_that_rows_are_hidden(sweeper: User) -> None:
    _secure(sweeper, "Sales.Orders.Delayed")
    endpoint = _as(sweeper)

    report = endpoint.run("report", "--out", str(endpoint.folder / "page.html"))
    watched = endpoint.run("watch")

    assert "Row-level security hides" in report.out
    assert (watched.code, "Row-level security hides" in watched.err) == (2, True)


@pytest.mark.parametrize(
    ("policies", "code", "advice"),
    [
        (["USING (true)"], 0, ""),
        (["TO PUBLIC USING (true) WITH CHECK (true)", "USING (false)"], 0, ""),
        (["FOR SELECT USING (true)"], 2, "CREATE POLICY"),
        (["TO postgres USING (true)"], 2, "CREATE POLICY"),
        (["USING (true)", "AS RESTRICTIVE USING (due < now())"], 2, "Run ALTER ROLE"),
        (["USING (true)", "AS RESTRICTIVE USING (true)"], 0, ""),
    ],
    ids=[
        "open",
        "open beside another",
        "not for all",
        "for others",
        "restricted",
        "not restricted",
    ],
)
def test_policy_that_hides_nothing_is_accepted(
    policies: list[str], code: int, advice: str, sweeper: User
) -> None:
    _secure(sweeper, "Sales.Orders.Delayed", *policies)

    ran = _as(sweeper).run("sweep")

    assert (ran.code, advice in ran.err) == (code, True), ran
    assert len(sweeper.endpoint.waiting()) == (3 if code else 0)


def test_owner_whom_policies_do_not_bind_sweeps_until_they_are_forced(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing").delay_many(2)
    with new_user(endpoint, *WHOLE) as user:
        endpoint.execute(f'ALTER TABLE "Sales.Orders.Delayed" OWNER TO {user.name}')
        _secure(user, "Sales.Orders.Delayed")
        assert endpoint.document("sweep", store__dsn=user.dsn)["dispatched"] == 2

        endpoint.execute('ALTER TABLE "Sales.Orders.Delayed" FORCE ROW LEVEL SECURITY')

        assert endpoint.run("sweep", store__dsn=user.dsn).code == 2
        endpoint.execute(
            f'ALTER TABLE "Sales.Orders.Delayed" OWNER TO {endpoint.server.admin.info.user}'
        )


def test_queue_that_refuses_rows_keeps_its_messages_with_a_statement_that_helps(
    sweeper: User,
) -> None:
    _secure(sweeper, "Billing")
    sweeper.endpoint.delay("Shipping")
    endpoint = _as(sweeper)

    swept = endpoint.document("sweep", code=4)

    assert (swept["dispatched"], swept["left"]) == (1, 3)
    assert f'CREATE POLICY duesweep ON "public"."Billing" TO {sweeper.name}' in swept["reason"]
    assert diagnosed(endpoint.config_file()).of("row-security")["severity"] == "fault"
    peeked = endpoint.run("queue", "peek", "Billing")
    assert (peeked.code, "Row-level security" in peeked.err) == (2, True)


TABLE = SqlServerTable("nsb", "dbo", "Sales.Orders.Delayed")
COLUMN = {"name": "Due", "type": "datetime", "kind": "BASE TABLE", "mark": None, "hook": None}
POLICY = {"table": TABLE.table, "policy_schema": "sec", "policy": "Tenants", "is_filtered": 1}


@pytest.mark.parametrize("policies", [0, 1])
def test_security_policy_of_sql_server_is_asked_for_only_if_there_is_one(policies: int) -> None:
    rows = {"describe_table": [COLUMN | {"policies": policies}], "hidden_tables": [POLICY]}
    session: Any = RecordedSession(rows)

    found = SQL_SERVER_TABLES.find(session, [WantedTable(TABLE)])[TABLE]

    assert ("hidden_tables" in session.asked) == bool(policies)
    assert [each.advice for each in found.faults] == [
        "run ALTER SECURITY POLICY [sec].[Tenants] DROP FILTER PREDICATE ON "
        "[dbo].[Sales.Orders.Delayed]"
    ] * policies
