"""The doctor on RabbitMQ: the endpoints that a sweep needs, and the delay ladder where it does."""

from support.diagnosis import Diagnosis, diagnosed
from support.endpoint import Endpoint
from support.rabbitmq.broker import Broker
from support.rabbitmq.settings import set_up, settings

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
