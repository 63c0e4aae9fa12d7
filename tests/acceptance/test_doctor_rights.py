"""The doctor on PostgreSQL: what setup has not made, what a role may not do, and its time-outs."""

from collections.abc import Iterator

import pytest

from duesweep.cli.app import main
from support.diagnosis import diagnosed
from support.endpoint import Endpoint
from support.routes import add_routes
from support.users import User, new_user

DELAYED = '"public"."Sales.Orders.Delayed"'
OWN = '"public"."Sales.Orders"'
BILLING = '"public"."Billing"'
STORE = "store.dsn"

Capture = pytest.CaptureFixture[str]


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


def test_before_setup_the_setup_is_what_is_missing(capsys: Capture, endpoint: Endpoint) -> None:
    found = diagnosed(capsys, endpoint.config_file())

    assert found.to_mend() == {
        ("setup", STORE): "fault",
        ("table-exists", DELAYED): "fault",
        ("table-exists", OWN): "fault",
    }
    assert found.of("setup")["advice"] == "Run the command `setup` once"
    assert "has not run" in found.of("setup")["found"]


def test_each_table_has_one_finding_with_the_grants_that_mend_it(
    capsys: Capture, healthy: Endpoint
) -> None:
    dsn = healthy.server.role("newcomer", "CONNECT ON DATABASE " + _database(healthy))
    healthy.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    file = healthy.config_file(store__dsn=dsn)

    found = diagnosed(capsys, file)

    rights = found.all_of("table-rights")
    names = ("journal", "sweeps", "attempts", "bindings", "changes", "pauses", "limits")
    journal = {f'"public"."duesweep_{name}"' for name in names}
    assert {f["about"] for f in rights} == {DELAYED, OWN, *journal}
    assert len(rights) == len(journal) + 2
    assert all(f["severity"] == "fault" for f in rights)
    for statement in found.statements("table-rights"):
        healthy.execute(statement)
    assert diagnosed(capsys, file).code == 0


def test_rights_are_told_with_the_tables_that_they_are_on(
    capsys: Capture, healthy: Endpoint
) -> None:
    main(["doctor", "--no-spark", "--verbose", "--config", str(healthy.config_file())])

    text = " ".join(capsys.readouterr().out.split())
    assert f"{DELAYED}: This user has SELECT, UPDATE, DELETE ok" in text
    assert f"{OWN}: This user has INSERT ok" in text


@pytest.mark.parametrize("due_in_seconds", [-60, 86_400])
def test_queue_that_messages_wait_for_is_looked_at(
    capsys: Capture, healthy: Endpoint, sweeper: User, due_in_seconds: float
) -> None:
    healthy.delay_many(3, due_in_seconds=due_in_seconds)
    file = healthy.config_file(store__dsn=sweeper.dsn)
    assert diagnosed(capsys, file).code == 0
    sweeper.revoke(f"INSERT ON {BILLING}")

    found = diagnosed(capsys, file)

    assert (found.code, found.to_mend()) == (3, {("table-rights", BILLING): "fault"})
    grant, *_ = found.statements("table-rights")
    healthy.execute(grant)
    assert diagnosed(capsys, file).code == 0


def test_sequence_that_may_not_be_drawn_from(
    capsys: Capture, healthy: Endpoint, sweeper: User
) -> None:
    sweeper.revoke('ALL ON SEQUENCE "Sales.Orders_seq_seq"')

    found = diagnosed(capsys, healthy.config_file(store__dsn=sweeper.dsn))

    assert found.to_mend() == {("table-rights", OWN): "fault"}
    assert (
        'GRANT USAGE ON SEQUENCE public."Sales.Orders_seq_seq"'
        in found.of("table-rights")["advice"]
    )
    assert "1 queue tables are closed" in found.of("seq-headroom")["found"]


def test_queue_that_messages_wait_for_and_is_not_there(capsys: Capture, healthy: Endpoint) -> None:
    healthy.delay_many(3, ["Nowhere", "Billing", None, "Sales.Orders"])
    healthy.delay(headers="not JSON")

    found = diagnosed(capsys, healthy.config_file())

    assert found.to_mend() == {("table-exists", '"public"."Nowhere"'): "fault"}
    assert "queue that messages wait for" in found.of("table-exists")["found"]
    assert "setup" not in found.of("table-exists")["advice"]


def test_queues_on_connections_of_their_own_are_looked_at_there(
    capsys: Capture, healthy: Endpoint, sweeper: User
) -> None:
    healthy.create_queue("Shipping")
    healthy.delay_many(2, ["Billing", "Nobody's"])
    file = healthy.config_file(queues__east__dsn=sweeper.dsn, queues__here__schema="public")
    for queue, connection in (("Sales.Orders", "here"), ("Billing", "east"), ("Shipping", "east")):
        add_routes(file, (queue, connection, "{destination}"))
    sweeper.revoke(f"INSERT ON {BILLING}")

    found = diagnosed(capsys, file)

    assert found.to_mend() == {
        ("table-rights", BILLING): "fault",
        ("table-rights", '"public"."Shipping"'): "fault",
        ("route", "Nobody's"): "fault",
    }
    assert "of waiting messages" in found.of("route")["found"]


def test_as_many_queues_as_there_may_be_are_looked_at_and_the_rest_is_named(
    capsys: Capture, healthy: Endpoint
) -> None:
    for number in range(53):
        healthy.delay(f"Queue{number}", due_in_seconds=number)

    found = diagnosed(capsys, healthy.config_file())

    missing = [about for check, about in found.to_mend() if check == "table-exists"]
    assert len(missing) == 50
    (rest,) = [f for f in found.all_of("route") if f["severity"] == "skipped"]
    assert "3 more" in rest["found"]


def test_time_outs_of_the_role_are_told_and_do_no_harm(
    capsys: Capture, healthy: Endpoint, sweeper: User
) -> None:
    alter = f"ALTER ROLE {sweeper.name} SET"
    healthy.execute(f"{alter} idle_in_transaction_session_timeout = '1s'")
    healthy.execute(f"{alter} statement_timeout = '90s'")
    healthy.execute(f"ALTER DATABASE {_database(healthy)} SET lock_timeout = 250")

    found = diagnosed(capsys, healthy.config_file(store__dsn=sweeper.dsn))

    finding = found.of("session-time-outs")
    assert (found.code, finding["severity"]) == (0, "ok")
    for told in (
        "idle_in_transaction_session_timeout 1,000 ms (for this role)",
        "statement_timeout 90,000 ms (for this role)",
        "lock_timeout 250 ms (for this database)",
    ):
        assert told in finding["found"]
    assert "do no harm" in finding["found"]


def test_role_without_time_outs_is_told_so(capsys: Capture, healthy: Endpoint) -> None:
    finding = diagnosed(capsys, healthy.config_file()).of("session-time-outs")

    assert (finding["severity"], finding["about"]) == ("ok", STORE)
    assert "Neither this role" in finding["found"]


def _database(endpoint: Endpoint) -> str:
    return str(endpoint.server.admin.info.dbname)
