"""A connection that has none of the queues that messages go to ends a sweep before it claims."""

from pathlib import Path
from typing import TYPE_CHECKING, Union

import pytest

from duesweep.config.adapters.context import store_of
from support.commands import Ran, run
from support.config_files import add_routes
from support.diagnosis import diagnosed
from support.endpoint import Endpoint
from support.postgresql_server import PostgreSqlEndpoint, PostgreSqlServer
from support.rabbitmq.broker import Broker
from support.rabbitmq.commands import set_up, settings

if TYPE_CHECKING:
    from support.sqlserver_server import SqlServerEndpoint


Subject = Union[PostgreSqlEndpoint, "SqlServerEndpoint"]
QUEUES = ("Billing", "Shipping", "error")
RIGHT, WRONG = "{queue}", "{queue}.input"


@pytest.fixture(params=["sql-persistence/postgresql", "sql-persistence/sqlserver", "msmq"])
def subject(request: pytest.FixtureRequest) -> Subject:
    """A store whose destinations are a column, and queues `QUEUES` next to it."""
    kind = request.param.partition("/")[0]
    if request.param.endswith("/postgresql"):
        return request.getfixturevalue("endpoint").of_kind("sql-persistence").set_up(*QUEUES)
    found: SqlServerEndpoint = request.getfixturevalue("sqlserver_endpoint")
    return found.of_kind(kind).set_up(*QUEUES)


def _file(subject: Subject, *templates: str) -> Path:
    """A configuration with a route to a queue of each of these names, for HOST-0, HOST-1 …"""
    file = subject.config_file(
        **{f"queues__host{i}__kind": subject.config().store.dialect for i in range(len(templates))},
        queues__default__kind=subject.config().store.dialect,
    )
    routes = [(f"*@HOST-{i}", f"host{i}", queue) for i, queue in enumerate(templates)]
    return add_routes(file, *routes, ("error", "default", "error"))


def _sweep(subject: Subject, *templates: str) -> Ran:
    return run("sweep", "--config", str(_file(subject, *templates)))


def test_sweep_refuses_a_route_with_a_typo(subject: Subject) -> None:
    subject.delay_many(40, ["Billing@HOST-0", "Shipping@HOST-0"])

    ran = _sweep(subject, WRONG)

    (line,) = ran.err.splitlines()
    assert (ran.code, len(subject.waiting())) == (2, 40)
    assert "queues.host0 has none of the queues that its messages go to" in line
    assert "Billing@HOST-0 goes to Billing.input" in line
    assert "Shipping@HOST-0 goes to Shipping.input" in line
    assert "Correct [[route]]" in line


@pytest.mark.parametrize(
    ("due", "waiting", "templates", "code"),
    [
        (["Billing@HOST-0", "Shipping@HOST-0"], [], [RIGHT], 0),
        (["Billing@HOST-0", "Shipping@HOST-1"], [], [RIGHT, WRONG], 2),
        (["Gone@HOST-0", "Shipping@HOST-0"], [], [RIGHT], 3),
        (["Gone@HOST-0"], ["Shipping@HOST-0"], [RIGHT], 3),
        ([], ["Billing@HOST-0"], [WRONG], 0),
        ([""], [], [RIGHT], 3),
    ],
    ids=[
        "all queues are there",
        "one connection has none",
        "another destination that is due is alive",
        "one that waits is alive",
        "nothing is due",
        "an empty destination is its message's fault",
    ],
)
def test_messages_are_let_go_unless_a_connection_has_none_of_their_queues(
    subject: Subject, due: list[str], waiting: list[str], templates: list[str], code: int
) -> None:
    subject.delay_many(2 * len(due), due)
    subject.delay_many(len(waiting), waiting, due_in_seconds=3_600)

    assert _sweep(subject, *templates).code == code


def test_dead_destination_alone_is_let_go_by_a_route_of_its_own(subject: Subject) -> None:
    subject.delay("Gone@HOST-0")

    refused = _sweep(subject, RIGHT)

    assert refused.code == 2
    assert "route their messages to a queue that is there" in refused.err
    assert _sweep(subject, "error").code == 0


def test_destinations_that_no_route_takes_are_refused(subject: Subject) -> None:
    subject.delay_many(4, ["Billing@FAR", "Shipping@FAR"])

    refused = _sweep(subject, RIGHT)

    assert refused.code == 2
    assert "No [[route]] takes any of the messages' destinations" in refused.err


def test_message_in_back_off_is_not_asked_for(subject: Subject) -> None:
    key = subject.delay("Gone")
    subject.delay_many(3, ["Billing", "Shipping", "Billing"])
    store = store_of(subject.config())
    attempts = f'"{subject.schema}"."duesweep_attempts"'
    later = "'2999-01-01'"
    with store.open_driver() as session:
        horizon = session.due.horizon()
        assert session.due.destinations(horizon) == ["Billing", "Gone", "Shipping"]

        subject.execute(
            f"INSERT INTO {attempts} (source, message_key, attempts, first_failed_at,"
            " last_failed_at, next_attempt_at, error_class, error_text)"
            f" VALUES ('{store.source}', '{key}', 1, {later}, {later}, {later}, 'e', 'e')"
        )

        assert session.due.destinations(horizon) == ["Billing", "Shipping"]
        assert session.due.destinations(None) == ["Billing", "Gone", "Shipping"]


def test_message_that_never_comes_due_says_nothing_of_a_connection(subject: Subject) -> None:
    subject.delay("Shipping@HOST-0")
    name = '"Time"' if isinstance(subject.server, PostgreSqlServer) else "[Time]"
    subject.execute(f"UPDATE {subject.delayed} SET {name} = NULL")
    subject.delay("Gone@HOST-0")

    assert _sweep(subject, RIGHT).code == 2


def test_doctor_says_so_before_anything_is_due(subject: Subject) -> None:
    subject.delay("Biling@HOST-0", due_in_seconds=3_600)

    report = diagnosed(_file(subject, RIGHT))

    # The queue that is not there is a fault of its own.
    assert report.code == 3
    found = report.of("sweep-start")
    assert found["severity"] == "skipped"
    assert "queues.host0 has none of the queues" in found["found"]
    assert "correct [[route]] or [queues.host0]" in found["found"]


@pytest.mark.parametrize("topology", ["conventional", "direct"])
def test_sweep_asks_a_broker_for_its_endpoints(
    endpoint: Endpoint, broker: Broker, topology: str
) -> None:
    broker.create("Billing")
    broker.create("Sales.Orders")
    more = settings(broker, queues__default__topology=topology)
    timeouts = endpoint.of_kind("sql-persistence").having(**more).set_up()

    timeouts.delay_many(4, ["Biling", "Shiping"])
    refused = timeouts.run("sweep")
    assert refused.code == 2
    assert "Biling goes to Biling (There is no queue Biling on RabbitMQ" in refused.err
    timeouts.delay("Billing")
    assert timeouts.run("sweep").code == 3


@pytest.mark.parametrize("style", ["conventional", "direct"])
def test_doctor_finds_the_queue_that_messages_for_the_broker_wait_for(
    endpoint: Endpoint, broker: Broker, style: str
) -> None:
    set_up(endpoint, broker, "Billing")
    healthy = endpoint.having(**settings(broker, queues__default__topology=style))
    healthy.delay_many(2, ["Billing", "Missing"])

    found = healthy.run("doctor", "--no-spark", "--json")

    faults = [one for one in found.document["findings"] if one["severity"] == "fault"]
    assert [(one["check"], one["about"]) for one in faults] == [("table-exists", "Missing")]
    assert found.code == 3
    assert "Start its endpoint" in faults[0]["advice"]
    broker.create("Missing")
    assert healthy.run("doctor", "--no-spark").code == 0


def test_doctor_finds_a_destination_that_is_not_allowed(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing").delay("Billing")
    strict = endpoint.having(sweep__allow_destinations=["Shipping*"])

    found = strict.run("doctor", "--no-spark", "--json")

    faults = [one for one in found.document["findings"] if one["severity"] == "fault"]
    assert [(one["check"], one["about"]) for one in faults] == [("route", "Billing")]
    assert found.code == 3
    assert "sweep.allow_destinations" in faults[0]["advice"]
    assert strict.run("plan").code == 0
    allowed = endpoint.having(sweep__allow_destinations=["Bill*"])
    assert allowed.run("doctor", "--no-spark").code == 0
