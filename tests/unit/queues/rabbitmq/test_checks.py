"""Findings on answers that no broker of the tests gives."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from duesweep.core.errors import ConfigError
from duesweep.core.finding import Check, Finding, Severity
from duesweep.drivers.rabbitmq.connection import Brokers
from duesweep.drivers.rabbitmq.management import Management
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.checks import (
    Vhost,
    broker_findings,
    delivery_findings,
    ladder_findings,
)
from duesweep.queues.rabbitmq.topology import Binding, Kind

_LADDER = topology.ladder()
_LEVEL = topology.level_name(3)


def _flags(**state: bool) -> list[dict[str, str]]:
    return [
        {"name": name, "state": "enabled" if is_on else "disabled"} for name, is_on in state.items()
    ]


GOOD = Vhost(
    "3.13.2",
    _flags(quorum_queue=True, stream_queue=True),
    {one.name: {"type": "topic", "durable": True} for one in _LADDER.exchanges},
    {one.name: {"arguments": one.arguments, "policy": None} for one in _LADDER.queues},
    frozenset(_LADDER.bindings),
)


def _severities(found: list[Finding]) -> dict[Check, Severity]:
    return {finding.check: finding.severity for finding in found}


@pytest.mark.parametrize(
    ("changed", "bad"),
    [
        ({}, {}),
        ({"version": "3.9.29"}, {Check.SERVER_VERSION: Severity.FAULT}),
        ({"version": "3.10.0-rc.1"}, {}),
        ({"version": "4.1.0", "flags": []}, {}),
        ({"version": "3.11.1", "flags": []}, {Check.FEATURE_FLAGS: Severity.FAULT}),
        (
            {"flags": _flags(quorum_queue=True, stream_queue=False)},
            {Check.FEATURE_FLAGS: Severity.FAULT},
        ),
        ({"flags": None}, {Check.FEATURE_FLAGS: Severity.SKIPPED}),
    ],
)
def test_broker_is_judged(changed: dict[str, Any], bad: Mapping[Check, Severity]) -> None:
    found = _severities(list(broker_findings("queues.default", replace(GOOD, **changed))))

    assert found == bad


@pytest.mark.parametrize(
    ("policy", "is_bad"),
    [
        ({}, False),
        ({"message-ttl": 7_999}, True),
        ({"message-ttl": 8_000}, False),
        ({"max-length": 1}, True),
        ({"max-length-bytes": 1}, True),
        ({"expires": 1}, True),
        ({"dead-letter-routing-key": "x"}, True),
        # The queue's own arguments go over these.
        ({"dead-letter-exchange": "x", "overflow": "drop-head", "ha-mode": "all"}, False),
    ],
)
def test_policy_is_bad_where_it_changes_something(policy: dict[str, Any], is_bad: bool) -> None:  # noqa: FBT001
    queue = {
        **GOOD.queues[_LEVEL],
        "effective_policy_definition": policy,
        "policy": "p",
        "operator_policy": "o",
    }

    found = list(ladder_findings(replace(GOOD, queues={**GOOD.queues, _LEVEL: queue})))

    bad = [finding for finding in found if finding.severity is Severity.FAULT]
    assert [(one.check, one.about) for one in bad] == [(Check.LADDER_POLICY, _LEVEL)] * is_bad
    assert all(one.found.startswith("Policy p, o sets ") for one in bad)


def test_transient_exchange_is_a_fault() -> None:
    changed = {**GOOD.exchanges, _LEVEL: {"type": "topic", "durable": False}}

    found = list(ladder_findings(replace(GOOD, exchanges=changed)))

    assert _severities(found)[Check.LADDER_EXCHANGE] is Severity.FAULT


@pytest.mark.parametrize(
    ("bindings", "bad"),
    [
        ([], None),
        ([("Billing", Kind.QUEUE, "#.Billing")], None),
        ([("Billing", Kind.EXCHANGE, "#.Billing")], Severity.FAULT),
        ([("Billing", Kind.QUEUE, "#")], Severity.WARNING),
        ([("Orders", Kind.QUEUE, "#.Orders"), ("B", Kind.QUEUE, "#.Sales.Orders")],
         Severity.WARNING),
        ([("Orders", Kind.QUEUE, "#.Orders"), ("B", Kind.QUEUE, "#.SalesOrders")], None),
        # Several queues of one endpoint, and an exchange that is bound to itself in a circle.
        ([("A", Kind.QUEUE, "#.A"), ("B", Kind.QUEUE, "#.A")], None),
    ],
)  # fmt: skip
def test_endpoints_are_judged(bindings: list[tuple[str, Kind, str]], bad: Severity | None) -> None:
    bound = {Binding(topology.DELIVERY_EXCHANGE, *one) for one in bindings}

    found = list(delivery_findings(replace(GOOD, bindings=GOOD.bindings | bound)))

    assert _severities(found) == ({Check.DELIVERY_BINDING: bad} if bad else {})


def test_exchange_may_lead_to_a_queue_by_others_and_in_circles() -> None:
    way = [(topology.DELIVERY_EXCHANGE, "A", "#.A"), ("A", "B", ""), ("B", "A", ""), ("B", "C", "")]
    circle = {Binding(source, to, Kind.EXCHANGE, key) for source, to, key in way}
    end = {Binding("C", "C", Kind.QUEUE)}

    dead = list(delivery_findings(replace(GOOD, bindings=GOOD.bindings | circle)))
    good = list(delivery_findings(replace(GOOD, bindings=GOOD.bindings | circle | end)))

    assert _severities(dead) == {Check.DELIVERY_BINDING: Severity.FAULT}
    assert good == []


def test_queue_without_a_policy_or_arguments_of_its_own_is_read() -> None:
    queue = {"effective_policy_definition": None, "policy": None}

    found = list(ladder_findings(replace(GOOD, queues={**GOOD.queues, _LEVEL: queue})))

    bad = [finding for finding in found if finding.severity is Severity.FAULT]
    assert [(one.check, one.about) for one in bad] == [(Check.LADDER_QUEUE, _LEVEL)]
    assert "x-message-ttl is not set, not 8000" in bad[0].found


@pytest.mark.parametrize("url", ["127.0.0.1:15672", "ftp://host", "http://"])
def test_management_url_of_another_form_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"\.management_url is wrong: it must begin"):
        Management(url, Brokers(("amqp://host",), "queues.default"))
