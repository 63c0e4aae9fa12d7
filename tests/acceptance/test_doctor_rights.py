"""The doctor on PostgreSQL: what setup has not made, what a role may not do, and its time-outs."""

from collections.abc import Iterator

import pytest

from support.diagnosis import diagnosed
from support.endpoint import Endpoint
from support.routes import add_routes
from support.users import User, new_user

DELAYED = '"public"."Sales.Orders.Delayed"'
OWN = '"public"."Sales.Orders"'
BILLING = '"public"."Billing"'
STORE = "store.dsn"


@pytest.fixture
def healthy(endpoint: Endpoint) -> Endpoint:
    return endpoint.set_up("Billing")


@pytest.fixture
def sweeper(healthy: Endpoint) -> Iterator[User]:
    """A user with all rights on the tables that are there."""
    tables = ("ALL ON ALL TABLES", "USAGE ON ALL SEQUENCES")
    rights = [f"{right} IN SCHEMA public" for right in tables]
    with new_user(healthy, *rights, "USAGE ON SCHEMA public") as user:
        yield user


def test_before_setup_the_setup_is_what_is_missing(endpoint: Endpoint) -> None:
    found = diagnosed(endpoint.config_file())

    assert found.to_mend() == {
        ("setup", STORE): "fault",
        ("table-exists", DELAYED): "fault",
        ("table-exists", OWN): "fault",
    }
    assert found.of("setup")["advice"] == "Run the command `setup` once"
    assert "has not run" in found.of("setup")["found"]


def test_each_table_has_one_finding_with_the_grants_that_mend_it(healthy: Endpoint) -> None:
    dsn = healthy.server.role("newcomer", "CONNECT ON DATABASE " + _database(healthy))
    healthy.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")

    found = diagnosed(healthy.config_file(store__dsn=dsn))

    rights = found.all_of("table-rights")
    names = ("journal", "sweeps", "attempts", "bindings", "changes", "pauses", "limits")
    journal = {f'"public"."duesweep_{name}"' for name in names}
    assert {f["about"] for f in rights} == {DELAYED, OWN, *journal}
    assert len(rights) == len(journal) + 2
    assert all(f["severity"] == "fault" for f in rights)
    for statement in found.statements("table-rights"):
        healthy.execute(statement)
    assert diagnosed(healthy.config_file(store__dsn=dsn)).code == 0


def test_queue_that_messages_wait_for_is_looked_at(healthy: Endpoint, sweeper: User) -> None:
    healthy.delay_many(3, due_in_seconds=86_400)
    file = healthy.config_file(store__dsn=sweeper.dsn)
    assert diagnosed(file).code == 0
    sweeper.revoke(f"INSERT ON {BILLING}")

    found = diagnosed(file)

    assert (found.code, found.to_mend()) == (3, {("table-rights", BILLING): "fault"})


def test_queue_that_messages_wait_for_and_is_not_there(healthy: Endpoint) -> None:
    healthy.delay_many(3, ["Nowhere", "Billing", None, "Sales.Orders"])
    healthy.delay(headers="not JSON")

    found = diagnosed(healthy.config_file())

    assert found.to_mend() == {("table-exists", '"public"."Nowhere"'): "fault"}
    assert "queue that messages wait for" in found.of("table-exists")["found"]
    assert "setup" not in found.of("table-exists")["advice"]


def test_queues_on_connections_of_their_own_are_looked_at_there(
    healthy: Endpoint, sweeper: User
) -> None:
    healthy.create_queue("Shipping")
    healthy.delay_many(2, ["Billing", "Nobody's"])
    file = healthy.config_file(queues__east__dsn=sweeper.dsn, queues__here__schema="public")
    for queue, connection in (("Sales.Orders", "here"), ("Billing", "east"), ("Shipping", "east")):
        add_routes(file, (queue, connection, "{destination}"))
    sweeper.revoke(f"INSERT ON {BILLING}")

    found = diagnosed(file)

    assert found.to_mend() == {
        ("table-rights", BILLING): "fault",
        ("table-rights", '"public"."Shipping"'): "fault",
        ("route", "Nobody's"): "fault",
    }
    assert "of waiting messages" in found.of("route")["found"]


def test_as_many_queues_as_there_may_be_are_looked_at_and_the_rest_is_named(
    healthy: Endpoint,
) -> None:
    for number in range(53):
        healthy.delay(f"Queue{number}", due_in_seconds=number)

    found = diagnosed(healthy.config_file())

    missing = [about for check, about in found.to_mend() if check == "table-exists"]
    assert len(missing) == 50
    (rest,) = [f for f in found.all_of("route") if f["severity"] == "skipped"]
    assert "3 more" in rest["found"]


def test_time_outs_of_the_role_are_told_and_do_no_harm(healthy: Endpoint, sweeper: User) -> None:
    alter = f"ALTER ROLE {sweeper.name} SET"
    healthy.execute(f"{alter} idle_in_transaction_session_timeout = '1s'")
    healthy.execute(f"{alter} statement_timeout = '90s'")
    healthy.execute(f"ALTER DATABASE {_database(healthy)} SET lock_timeout = 250")

    found = diagnosed(healthy.config_file(store__dsn=sweeper.dsn))

    finding = found.of("session-time-outs")
    assert (found.code, finding["severity"]) == (0, "ok")
    for told in (
        "idle_in_transaction_session_timeout 1,000 ms (for this role)",
        "statement_timeout 90,000 ms (for this role)",
        "lock_timeout 250 ms (for this database)",
    ):
        assert told in finding["found"]
    assert "do no harm" in finding["found"]


def _database(endpoint: Endpoint) -> str:
    return str(endpoint.server.admin.info.dbname)
