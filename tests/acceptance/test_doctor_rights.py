"""The doctor on PostgreSQL: what setup has not made, what a role may not do, and its time-outs."""

from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from duesweep.cli.app import main
from duesweep.core.address import quote_name
from support.diagnosis import Diagnosis, diagnosed
from support.endpoint import Endpoint

DELAYED = '"public"."Sales.Orders.Delayed"'
OWN = '"public"."Sales.Orders"'
BILLING = '"public"."Billing"'
STORE = "store.dsn"

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def healthy(endpoint: Endpoint) -> Endpoint:
    return endpoint.set_up("Billing")


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

    found = _rights(diagnosed(capsys, file))

    names = ("journal", "sweeps", "attempts", "bindings", "changes", "pauses", "limits")
    journal = {f'"public"."duesweep_{name}"' for name in names}
    assert {f["about"] for f in found} == {DELAYED, OWN, *journal}
    assert len(found) == len(journal) + 2
    assert all(f["severity"] == "fault" for f in found)
    for finding in found:
        for grant in finding["advice"].split("; "):
            healthy.execute(grant)
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
    capsys: Capture, healthy: Endpoint, due_in_seconds: float
) -> None:
    dsn = _sweeper(healthy)
    healthy.delay_many(3, due_in_seconds=due_in_seconds)
    file = healthy.config_file(store__dsn=dsn)
    assert diagnosed(capsys, file).code == 0
    healthy.execute(f"REVOKE INSERT ON {BILLING} FROM {_role_of(dsn)}")

    found = diagnosed(capsys, file)

    assert (found.code, found.to_mend()) == (3, {("table-rights", BILLING): "fault"})
    healthy.execute(found.of("table-rights")["advice"].split("; ")[0])
    assert diagnosed(capsys, file).code == 0


def test_queue_that_messages_wait_for_and_is_not_there(capsys: Capture, healthy: Endpoint) -> None:
    healthy.delay_many(3, ["Nowhere", "Billing", None, "Sales.Orders"])
    healthy.delay(headers="not JSON")

    found = diagnosed(capsys, healthy.config_file())

    assert found.to_mend() == {("table-exists", '"public"."Nowhere"'): "fault"}
    assert "queue that messages wait for" in found.of("table-exists")["found"]
    assert "setup" not in found.of("table-exists")["advice"]


def test_queues_on_connections_of_their_own_are_looked_at_there(
    capsys: Capture, healthy: Endpoint
) -> None:
    other = _sweeper(healthy)
    healthy.create_queue("Shipping")
    healthy.delay_many(2, ["Billing", "Nobody's"])
    file = healthy.config_file(queues__east__dsn=other, queues__here__schema="public")
    _add_routes(file, ("Sales.Orders", "here"), ("Billing", "east"), ("Shipping", "east"))
    for table in (BILLING, '"public"."Shipping"'):
        healthy.execute(f"REVOKE INSERT ON {table} FROM {_role_of(other)}")

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
    (rest,) = [f for f in _of(found, "route") if f["severity"] == "skipped"]
    assert "3 more" in rest["found"]


def test_time_outs_of_the_role_are_told_and_do_no_harm(capsys: Capture, healthy: Endpoint) -> None:
    dsn = _sweeper(healthy)
    role = _role_of(dsn)
    healthy.execute(f"ALTER ROLE {role} SET idle_in_transaction_session_timeout = '1s'")
    healthy.execute(f"ALTER ROLE {role} SET statement_timeout = '90s'")
    healthy.execute(f"ALTER DATABASE {_database(healthy)} SET lock_timeout = 250")

    found = diagnosed(capsys, healthy.config_file(store__dsn=dsn))

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


def _of(found: Diagnosis, check: str) -> list[dict[str, Any]]:
    return [f for f in found.document["findings"] if f["check"] == check]


def _rights(found: Diagnosis) -> list[dict[str, Any]]:
    return _of(found, "table-rights")


def _add_routes(file: Any, *routes: tuple[str, str]) -> None:
    text = "".join(
        f'[[route]]\ndestination = "{pattern}"\nconnection = "{name}"\n' for pattern, name in routes
    )
    file.write_text(file.read_text(encoding="utf-8") + text, encoding="utf-8")


def _sweeper(endpoint: Endpoint) -> str:
    return endpoint.server.role(
        "sweeper",
        "ALL ON ALL TABLES IN SCHEMA public",
        "USAGE ON ALL SEQUENCES IN SCHEMA public",
        "USAGE ON SCHEMA public",
    )


def _role_of(dsn: str) -> str:
    return quote_name(str(conninfo_to_dict(dsn)["user"]))


def _database(endpoint: Endpoint) -> str:
    return quote_name(str(conninfo_to_dict(make_conninfo(endpoint.dsn))["dbname"]))
