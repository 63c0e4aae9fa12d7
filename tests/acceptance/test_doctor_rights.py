"""The doctor's command: missing tables, missing rights of a role, and the output."""

from collections.abc import Iterator

import pytest
from psycopg.conninfo import conninfo_to_dict

from duesweep.core.address import quote_name
from support.commands import Ran
from support.config_files import add_routes
from support.diagnosis import Diagnosis, diagnosed
from support.endpoint import Endpoint
from support.rabbitmq.broker import Broker
from support.rabbitmq.commands import set_up, settings
from support.users import User, new_user
from support.waiting import until

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
    names = ("journal", "sweeps", "attempts", "bindings", "changes", "pauses", "limits", "leases")
    journal = {f'"public"."duesweep_{name}"' for name in names}
    assert {f["about"] for f in rights} == {DELAYED, OWN, *journal}
    assert len(rights) == len(journal) + 2
    assert all(f["severity"] == "fault" for f in rights)
    for statement in found.statements("table-rights"):
        healthy.execute(statement)
    assert diagnosed(healthy.config_file(store__dsn=dsn)).code == 0


@pytest.mark.parametrize(
    ("change", "sequence"),
    [
        ("", "public.error_seq_seq"),
        # Its own sequence is not used then.
        (
            "CREATE SEQUENCE shared; ALTER TABLE \"error\" ALTER seq SET DEFAULT nextval('shared')",
            "public.shared",
        ),
    ],
)
def test_right_on_a_sequence_that_lacks_is_found_by_doctor_and_sweep(
    endpoint: Endpoint, sweeper: User, change: str, sequence: str
) -> None:
    healthy = endpoint.having(retry__error_queue="error").set_up("Billing")
    healthy.execute(change)
    sweeper.grant('INSERT, SELECT ON "error"')
    file = healthy.config_file(store__dsn=sweeper.dsn)

    found, ran = diagnosed(file), healthy.run("sweep", store__dsn=sweeper.dsn)

    assert found.to_mend() == {("table-rights", '"public"."error"'): "fault"}
    (statement,) = found.of("table-rights")["statements"]
    assert statement.startswith(f"GRANT USAGE ON SEQUENCE {sequence} ")
    assert (ran.code, statement in ran.err) == (2, True), ran
    healthy.execute(statement)
    assert diagnosed(file).code == healthy.run("sweep", store__dsn=sweeper.dsn).code == 0


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
    assert "queue that messages wait for" in found.of("route")["found"]


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


def _database(endpoint: Endpoint) -> str:
    return str(endpoint.server.admin.info.dbname)


DROP_INDEX = 'DROP INDEX "Sales.Orders.Delayed_Due"'


@pytest.fixture
def harmed(endpoint: Endpoint) -> Endpoint:
    """An index is missing, and a role with a long name may do nothing."""
    healthy = endpoint.having(retry__error_queue="error").set_up("Billing")
    healthy.execute(DROP_INDEX)
    database = quote_name(str(conninfo_to_dict(healthy.dsn)["dbname"]))
    healthy.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    dsn = healthy.server.role("n" * 30, f"CONNECT ON DATABASE {database}")
    return healthy.having(store__dsn=str(dsn))


def _doctor(endpoint: Endpoint, *options: str, **settings: object) -> Ran:
    return endpoint.run("doctor", "--no-spark", *options, **settings)


def test_ignored_check_is_said_but_not_counted(healthy: Endpoint) -> None:
    healthy.execute(DROP_INDEX)

    found = diagnosed(healthy.config_file(), "--ignore", "table-index")

    assert (found.code, found.to_mend()) == (0, {})
    assert found.of("table-index")["severity"] == "ignored"


def test_no_line_is_cut_or_wrapped_in_a_pipe(harmed: Endpoint) -> None:
    findings = diagnosed(harmed.config_file()).document["findings"]

    ran = _doctor(harmed)

    lines = [line.strip() for line in ran.out.splitlines()]
    advice = [finding["advice"] for finding in findings if finding["advice"]]
    assert ran.code == 3
    assert max(map(len, advice)) > 100
    assert {f"→ {each}" for each in advice} <= set(lines)


def test_printed_statements_mend_the_findings(harmed: Endpoint) -> None:
    ran = _doctor(harmed, "--print-sql")

    statements = ran.out.splitlines()
    assert (ran.code, ran.err) == (3, "")
    assert len(set(statements)) == len(statements)
    assert sum("USAGE ON SCHEMA" in statement for statement in statements) == 1
    for statement in statements:
        harmed.execute(statement)
    assert diagnosed(harmed.config_file()).code == 0
    assert _doctor(harmed, "--print-sql") == Ran(0, "", "")


def test_finding_that_no_statement_mends_is_on_standard_error(healthy: Endpoint) -> None:
    healthy.execute(f"DROP TABLE {OWN}")

    ran = _doctor(healthy, "--print-sql")

    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith(f"duesweep: no statement mends table-exists of {OWN}: ")
    assert "Run the command `setup`" in ran.err


LOOKING_AHEAD = {"sweep__look_ahead_seconds": 60}


def _diagnosed(endpoint: Endpoint, broker: Broker, **more: object) -> Diagnosis:
    return diagnosed(endpoint.config_file(**settings(broker) | more))


def test_broker_with_the_endpoint_and_the_ladder_is_well(
    endpoint: Endpoint, broker: Broker
) -> None:
    set_up(endpoint, broker)
    api = {"queues__default__management_url": broker.server.management_url}

    found = _diagnosed(endpoint, broker, **LOOKING_AHEAD, **api)

    assert (found.code, found.to_mend()) == (0, {})
    assert found.of("ladder-queue")["severity"] == "ok"


@pytest.mark.parametrize("asks", ["by the management API", "by AMQP"])
@pytest.mark.parametrize(
    ("harm", "words"),
    [("transient", "The queue is not durable"), ("short", "max-length is 10, and the queue drops")],
)
def test_queue_that_loses_confirmed_messages_is_a_warning(
    asks: str, harm: str, words: str, endpoint: Endpoint, broker: Broker
) -> None:
    broker.create("Sales.Orders")
    if harm == "transient":
        broker.channel.queue_delete("Sales.Orders")
        broker.channel.queue_declare("Sales.Orders", durable=False)
    else:
        policy = {"pattern": "^Sales", "definition": {"max-length": 10}, "apply-to": "queues"}
        broker.api("policies/{vhost}/short", "PUT", policy)
    by_api = asks == "by the management API"
    api = {"queues__default__management_url": broker.server.management_url} if by_api else {}

    # The API's answer may be some seconds old.
    until(lambda: not by_api or _is_known(broker, harm))
    found = _diagnosed(endpoint.set_up(), broker, **api)

    # AMQP does not report policies.
    if by_api or harm == "transient":
        assert (found.code, found.to_mend()) == (3, {("durability", "Sales.Orders"): "warning"})
        assert words in found.of("durability")["found"]
    else:
        assert found.code == 0


def _is_known(broker: Broker, harm: str) -> bool:
    queue = broker.api("queues/{vhost}/Sales.Orders")
    return not queue["durable"] if harm == "transient" else bool(queue.get("policy"))


def test_missing_endpoints_and_a_missing_ladder_are_faults(
    endpoint: Endpoint, broker: Broker
) -> None:
    found = _diagnosed(endpoint.set_up(), broker, **LOOKING_AHEAD, retry__error_queue="error")

    assert found.code == 3
    missing = {("table-exists", name): "fault" for name in ("Sales.Orders", "error")}
    ladder = {("ladder-exchange", "nsb.v2.delay-delivery"): "fault"}
    assert (missing | ladder).items() <= found.to_mend().items()


def test_ladder_is_not_asked_for_where_no_sweep_looks_ahead(
    endpoint: Endpoint, broker: Broker
) -> None:
    broker.create("Sales.Orders")

    found = _diagnosed(endpoint.set_up(), broker)

    assert (found.code, found.to_mend()) == (0, {})


def test_broker_out_of_reach_is_a_finding_and_shows_no_password(
    endpoint: Endpoint, broker: Broker
) -> None:
    url = "amqp://guest:Secret-1@127.0.0.1:1/"

    found = _diagnosed(endpoint.set_up(), broker, queues__default__url=url)

    assert found.to_mend() == {("server-reachable", "queues.default"): "fault"}
    assert "Secret-1" not in found.text
