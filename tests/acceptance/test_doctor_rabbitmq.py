"""The doctor on RabbitMQ: the endpoints that a sweep needs, and the delay ladder where it does."""

import pytest

from support.diagnosis import diagnosed
from support.endpoint import Endpoint
from support.rabbitmq.broker import Broker
from support.rabbitmq.settings import set_up, settings

Capture = pytest.CaptureFixture[str]


def test_broker_with_the_endpoint_and_the_ladder_is_well(
    capsys: Capture, endpoint: Endpoint, broker: Broker
) -> None:
    set_up(endpoint, broker)
    more = {"sweep__look_ahead_seconds": 60, "queues__default__management_url": _api(broker)}

    found = diagnosed(capsys, endpoint.config_file(**settings(broker, **more)))

    assert (found.code, found.to_mend()) == (0, {})
    assert found.of("ladder-queue")["severity"] == "ok"


def test_missing_endpoints_and_a_missing_ladder_are_faults(
    capsys: Capture, endpoint: Endpoint, broker: Broker
) -> None:
    endpoint.set_up()
    more = {"sweep__look_ahead_seconds": 60, "retry__error_queue": "error"}

    found = diagnosed(capsys, endpoint.config_file(**settings(broker, **more)))

    assert found.code == 3
    missing = {("table-exists", name): "fault" for name in ("Sales.Orders", "error")}
    ladder = {("ladder-exchange", "nsb.v2.delay-delivery"): "fault"}
    assert (missing | ladder).items() <= found.to_mend().items()


def test_ladder_is_not_asked_for_where_no_sweep_looks_ahead(
    capsys: Capture, endpoint: Endpoint, broker: Broker
) -> None:
    endpoint.set_up()
    broker.create("Sales.Orders")

    found = diagnosed(capsys, endpoint.config_file(**settings(broker)))

    assert (found.code, found.to_mend()) == (0, {})


def test_broker_out_of_reach_is_a_finding_and_shows_no_password(
    capsys: Capture, endpoint: Endpoint, broker: Broker
) -> None:
    endpoint.set_up()
    url = {"queues__default__url": "amqp://guest:Secret-1@127.0.0.1:1/"}

    found = diagnosed(capsys, endpoint.config_file(**settings(broker) | url))

    assert found.to_mend() == {("server-reachable", "queues.default"): "fault"}
    assert "Secret-1" not in found.text


def _api(broker: Broker) -> str:
    return broker.server.management_url
