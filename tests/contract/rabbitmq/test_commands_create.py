"""`delays create` and `endpoint create` make on a broker what NServiceBus makes there."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from duesweep.queues.rabbitmq import topology
from support.rabbitmq.broker import Broker
from support.rabbitmq.commands import run
from support.recordings import broker_definitions

# Endpoints that receive; the others of the recording are queues that are only sent to.
_ENDPOINTS = ("Billing", "Sales.Orders")
_OTHERS = {"Shipping", "error"}


def _comparable(found: Mapping[str, Iterable[Mapping[str, Any]]], kind: str) -> list[str]:
    """In one order, less what one of both leaves out."""
    # Of a queue, its arguments say the type as well; no exchange here is internal.
    left_out = {"vhost", "internal"} | ({"type"} if kind == "queues" else set())
    return sorted(
        json.dumps({name: one[name] for name in one.keys() - left_out}, sort_keys=True)
        for one in found[kind]
        if not _OTHERS & {one.get("name"), one.get("source")}
    )


def test_topology_is_the_one_that_was_recorded(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(broker, "delays", "create") == 0
    first = capsys.readouterr().out.splitlines()
    assert run(broker, "endpoint", "create", *_ENDPOINTS) == 0
    second = capsys.readouterr().out.splitlines()

    made, recorded = broker.definitions(), broker_definitions()
    for kind, count in (("exchanges", 31), ("queues", 30), ("bindings", 60)):
        assert _comparable(made, kind) == _comparable(recorded, kind)
        assert len(made[kind]) == count
    assert len(first) == 2 * topology.LEVELS + 1
    assert f"created exchange {topology.DELIVERY_EXCHANGE}" in first
    assert sorted(second) == sorted(
        f"created {kind} {name}" for kind in ("exchange", "queue") for name in _ENDPOINTS
    )
    assert run(broker, "endpoint", "create", *_ENDPOINTS) == 0
    assert capsys.readouterr().out == "Everything exists.\n"


def test_direct_endpoint_is_a_queue_bound_to_the_delivery_exchange(broker: Broker) -> None:
    assert run(broker, "endpoint", "create", "Billing", topology="direct") == 0

    found = broker.definitions()
    assert "Billing" not in {one["name"] for one in found["exchanges"]}
    assert [
        (one["source"], one["destination_type"], one["routing_key"])
        for one in found["bindings"]
        if one["destination"] == "Billing"
    ] == [(topology.DELIVERY_EXCHANGE, "queue", "#.Billing")]


def test_what_is_there_but_different_is_refused(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.channel.exchange_declare(topology.DELIVERY_EXCHANGE, "direct", durable=True)

    assert run(broker, "delays", "create") == 2

    said = capsys.readouterr().err
    assert topology.DELIVERY_EXCHANGE in said
    assert "something of the same name exists already, but differs" in said
    assert broker.api("exchanges/{vhost}/" + topology.DELIVERY_EXCHANGE)["type"] == "direct"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"kind": None, "url": None, "management_url": None},
            "of kind rabbitmq with --connection (there are: none)",
        ),
        ({"url": "amqp://guest:wrong@127.0.0.1:{amqp}"}, "check user, password, vhost"),
    ],
)
def test_wrong_setting_is_said_and_2(
    broker: Broker,
    capsys: pytest.CaptureFixture[str],
    settings: dict[str, str | None],
    says: str,
) -> None:
    filled = {n: v and v.format(amqp=broker.server.amqp) for n, v in settings.items()}

    assert run(broker, "delays", "create", **filled) == 2
    assert says in capsys.readouterr().err


def test_broker_out_of_reach_is_4(broker: Broker) -> None:
    assert run(broker, "delays", "create", url="amqp://guest:guest@127.0.0.1:1/") == 4
