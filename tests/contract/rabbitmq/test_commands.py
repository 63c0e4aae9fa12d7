"""`delays create` and `verify`, `endpoint create` and `send`: results, findings and refusals."""

import io
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from duesweep.core.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.topology import DELAY_HEADER
from support.rabbitmq.broker import Broker
from support.rabbitmq.broker_server import BrokerServer
from support.rabbitmq.commands import in_ladder, run
from support.rabbitmq.harms import HARMS, Harm
from support.recordings import broker_definitions
from support.waiting import until

# Endpoints that receive; the others of the recording are queues that are only sent to.
_ENDPOINTS = ("Billing", "Sales.Orders")
_OTHERS = {"Shipping", "error"}


def _comparable(found: Mapping[str, Iterable[Mapping[str, Any]]], kind: str) -> list[str]:
    """In one order, without fields that one of both leaves out."""
    # Of a queue, its arguments say the type as well; no exchange here is internal.
    left_out = {"vhost", "internal"} | ({"type"} if kind == "queues" else set())
    return sorted(
        json.dumps({name: one[name] for name in one.keys() - left_out}, sort_keys=True)
        for one in found[kind]
        if not _OTHERS & {one.get("name"), one.get("source")}
    )


def test_topology_is_the_one_that_was_recorded(broker: Broker) -> None:
    ladder = run(broker, "delays", "create")
    endpoints, again = (run(broker, "endpoint", "create", *_ENDPOINTS) for _ in range(2))
    first, second = ladder.out.splitlines(), endpoints.out.splitlines()

    assert (ladder.code, endpoints.code) == (0, 0)
    made, recorded = broker.definitions(), broker_definitions()
    for kind, count in (("exchanges", 31), ("queues", 30), ("bindings", 60)):
        assert _comparable(made, kind) == _comparable(recorded, kind)
        assert len(made[kind]) == count
    assert len(first) == 2 * topology.LEVELS + 1
    assert f"created exchange {topology.DELIVERY_EXCHANGE}" in first
    assert sorted(second) == sorted(
        f"created {kind} {name}" for kind in ("exchange", "queue") for name in _ENDPOINTS
    )
    assert (again.code, again.out) == (0, "Everything exists.\n")


def test_direct_endpoint_is_a_queue_bound_to_the_delivery_exchange(broker: Broker) -> None:
    assert run(broker, "endpoint", "create", "Billing", topology="direct").code == 0

    found = broker.definitions()
    assert "Billing" not in {one["name"] for one in found["exchanges"]}
    assert [
        (one["source"], one["destination_type"], one["routing_key"])
        for one in found["bindings"]
        if one["destination"] == "Billing"
    ] == [(topology.DELIVERY_EXCHANGE, "queue", "#.Billing")]


def test_what_is_there_but_different_is_refused(broker: Broker) -> None:
    broker.channel.exchange_declare(topology.DELIVERY_EXCHANGE, "direct", durable=True)

    ran = run(broker, "delays", "create")

    assert (ran.code, topology.DELIVERY_EXCHANGE in ran.err) == (2, True)
    assert "something of the same name exists already, but differs" in ran.err
    assert broker.api("exchanges/{vhost}/" + topology.DELIVERY_EXCHANGE)["type"] == "direct"


@pytest.mark.parametrize("command", [("delays", "create"), ("send", "Billing")])
@pytest.mark.parametrize(
    ("settings", "code", "says"),
    [
        (
            {"kind": None, "url": None, "management_url": None},
            2,
            "of kind rabbitmq with --connection (there are: none)",
        ),
        ({"url": "amqp://guest:wrong@127.0.0.1:{amqp}"}, 2, "Check user, password, vhost"),
        ({"url": "amqp://guest:guest@127.0.0.1:1/"}, 4, "127.0.0.1:1"),
    ],
)
def test_wrong_setting_is_2_and_a_broker_out_of_reach_is_4(
    broker: Broker,
    command: tuple[str, ...],
    settings: dict[str, str | None],
    code: int,
    says: str,
) -> None:
    filled = {n: v and v.format(amqp=broker.server.amqp) for n, v in settings.items()}

    ran = run(broker, *command, **filled)

    assert (ran.code, says in ran.err) == (code, True)


@pytest.fixture(scope="module")
def shared(broker_server: BrokerServer) -> Iterator[Broker]:
    """A vhost with a ladder and two endpoints, which every test leaves as it was."""
    broker = Broker(broker_server, "verified")
    assert run(broker, "endpoint", "create", "Billing", "Sales.Orders").code == 0
    yield broker
    broker.close()


def _verify(broker: Broker, **settings: Any) -> tuple[int, list[dict[str, Any]]]:
    ran = run(broker, "delays", "verify", "--json", **settings)
    return ran.code, ran.document["findings"]


def _bad(findings: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(f["check"], f["about"]) for f in findings if f["severity"] in {"fault", "warning"}}


def test_good_ladder_is_0(shared: Broker) -> None:
    code, findings = _verify(shared)

    assert (code, _bad(findings)) == (0, set())
    assert {f["check"] for f in findings} == {"server-reachable", "ladder-queue"}
    assert {finding["severity"] for finding in findings} == {"ok"}


def test_without_the_management_api_it_says_what_it_did_not_see(shared: Broker) -> None:
    code, findings = _verify(shared, management_url=None)

    assert (code, _bad(findings)) == (0, set())
    (unseen,) = [f for f in findings if f["severity"] == "skipped"]
    assert unseen["about"] == "queues.default.management_url"
    assert "AMQP does not report bindings" in unseen["found"]


def test_text_has_findings_and_their_count(shared: Broker) -> None:
    ran = run(shared, "delays", "verify")

    assert (ran.code, ran.out.splitlines()[-1]) == (0, "2 checks of the setup passed")


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.name)
def test_harm_is_found_and_3(shared: Broker, harm: Harm) -> None:
    told = shared.told_of_queues()
    harm.harm(shared)
    before = shared.definitions()
    try:
        code, findings = _verify(shared)
        by_amqp = _verify(shared, management_url=None)
        assert shared.definitions() == before
    finally:
        harm.mend(shared)
        assert run(shared, "endpoint", "create", "Billing", "Sales.Orders").code == 0
        # Or the next test would hear of it from the management API.
        until(lambda: shared.told_of_queues() == told)

    assert (code, _bad(findings)) == (3, harm.said)
    seen = {one for one in harm.said if one[0] != "ladder-binding"} if harm.by_amqp else set()
    assert (by_amqp[0], _bad(by_amqp[1])) == (3 if seen else 0, seen)
    assert all(f["advice"] for f in findings if f["severity"] in {"fault", "warning"})


def test_user_of_the_management_api_may_be_another(shared: Broker) -> None:
    """One that may see only a vhost."""
    server = shared.server
    server.control("add_user", "looker", "p@ss/word")
    server.control("set_user_tags", "looker", "management")
    server.control("set_permissions", "-p", shared.vhost, "looker", "^$", "^$", ".*")
    url = f"http://looker:p%40ss%2Fword@127.0.0.1:{server.management}"

    code, findings = _verify(shared, management_url=url)

    assert (code, _bad(findings)) == (0, set())
    skipped = {finding["check"] for finding in findings if finding["severity"] == "skipped"}
    assert skipped <= {"feature-flags"}
    nobody = run(shared, "delays", "verify", management_url=url.replace("looker", "nobody"))
    assert (nobody.code, "answers 401" in nobody.err) == (2, True)


@pytest.mark.parametrize(
    ("url", "code", "says"),
    [
        ("http://127.0.0.1:1", 4, "cannot be reached"),
        ("127.0.0.1:15672", 2, "write it as https://user:password@host:port"),
        ("http://127.0.0.1:{management}/nowhere", 2, "answers 404"),
        ("http://127.0.0.1:{amqp}", 4, "cannot be reached"),
    ],
)
def test_management_url_that_leads_nowhere_is_said(
    shared: Broker, url: str, code: int, says: str
) -> None:
    filled = url.format(management=shared.server.management, amqp=shared.server.amqp)

    ran = run(shared, "delays", "verify", management_url=filled)

    assert (ran.code, says in ran.err) == (code, True)


@pytest.mark.parametrize("topology", ["conventional", "direct"])
def test_message_with_a_delay_arrives_later_as_it_was_given(
    broker: Broker, topology: str, tmp_path: Path
) -> None:
    assert run(broker, "endpoint", "create", "Billing", topology=topology).code == 0
    body = tmp_path / "body"
    body.write_bytes(b"\0\xff")
    options = [
        "--delay=1",
        f"--header={MESSAGE_ID}=order/42",
        f"--header={ENCLOSED_MESSAGE_TYPES}=Sales.Remind, Sales",
        "--header=NServiceBus.CorrelationId=c",
        "--header=Colour=a=b",
        f"--body-file={body}",
    ]

    began = time.monotonic()
    ran = run(broker, "send", "Billing", *options, topology=topology)
    ((_, properties, arrived),) = broker.take_all("Billing", 1)

    assert time.monotonic() - began >= 1
    said = "deferred to Billing, which gets it in 1.0 s; message id order/42\n"
    assert (ran.code, ran.out) == (0, said)
    headers = {n: v for n, v in properties.headers.items() if not n.startswith("x-")}
    assert headers == {
        MESSAGE_ID: "order/42",
        ENCLOSED_MESSAGE_TYPES: "Sales.Remind, Sales",
        "NServiceBus.CorrelationId": "c",
        "Colour": "a=b",
        DELAY_HEADER: 1,
    }
    assert (properties.message_id, properties.type) == ("order/42", "Sales.Remind")
    assert (properties.correlation_id, properties.delivery_mode) == ("c", 2)
    assert arrived == b"\0\xff"


@pytest.mark.parametrize("topology", ["conventional", "direct"])
def test_message_without_a_delay_is_sent_at_once_and_its_new_id_is_printed(
    billing: Broker, topology: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"from stdin")))
    options = ("--body-file=-", "--time-to-be-received=1h")

    ran = run(billing, "send", "Billing", *options, topology=topology)

    ((_, properties, body),) = billing.take_all("Billing", 1)
    said = f"sent to Billing; message id {properties.message_id}\n"
    assert (ran.code, ran.out) == (0, said)
    assert (body, properties.expiration) == (b"from stdin", "3600000")
    assert properties.headers[MESSAGE_ID] == properties.message_id
    assert properties.headers["NServiceBus.TimeToBeReceived"] == "01:00:00"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--delay=1h", "--time-to-be-received=1h"], "both a delay and a time to be received"),
        (["--delay=1h", "--header=NServiceBus.TimeToBeReceived=01:00:00"], "cannot have a delay"),
        (["--delay=268435456"], "cannot hold a message for 268,435,456 s"),
        (["--delay=9999999999"], "'9999999999s' is not a duration"),
        (["--delay=soon"], "'soon' is not a duration"),
        (["--body=x", "--body-file=y"], "--body and --body-file are both given"),
        (["--header=Colour"], "is not of the form NAME=VALUE"),
        (
            [f"--header={MESSAGE_ID}=1", f"--header={MESSAGE_ID}=2"],
            f"The header {MESSAGE_ID} is given twice",
        ),
        (["--connection=other"], "There is no connection other to RabbitMQ"),
        # The ladder is missing.
        (["--delay=1h"], "no delay ladder. Run `duesweep rabbitmq delays create"),
    ],
)
def test_wrong_option_is_said_and_2_and_nothing_is_sent(
    billing: Broker, options: list[str], says: str
) -> None:
    ran = run(billing, "send", "Billing", *options)

    assert (ran.code, ran.out, says in ran.err) == (2, "", True)
    assert billing.count("Billing") == 0


@pytest.mark.parametrize("topology", ["conventional", "direct"])
@pytest.mark.parametrize("options", [[], ["--delay=1h"]])
def test_missing_endpoint_is_said_and_2(broker: Broker, options: list[str], topology: str) -> None:
    assert run(broker, "delays", "create").code == 0

    ran = run(broker, "send", "Nowhere", *options, topology=topology)

    said = "duesweep: Nothing was sent: There is no queue Nowhere on RabbitMQ"
    assert (ran.code, ran.out, ran.err.startswith(said)) == (2, "", True)
    assert "duesweep rabbitmq endpoint create" in ran.err
    assert in_ladder(broker) == 0


def test_refused_message_is_3(broker: Broker) -> None:
    broker.create("Billing", x_queue_type="classic", x_max_length=1, x_overflow="reject-publish")

    taken, refused = (run(broker, "send", "Billing") for _ in range(2))

    assert (taken.code, refused.code) == (0, 3)
    assert "RabbitMQ refused the message for Billing" in refused.err
    assert "may be full" in refused.err
