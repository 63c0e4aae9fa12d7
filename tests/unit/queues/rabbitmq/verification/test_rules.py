"""What is said of a broker's facts that no broker of the tests has."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from duesweep.checks.finding import Check, Finding, Severity

from duesweep.core.errors import ConfigError
from duesweep.drivers.rabbitmq.connection import Brokers
from duesweep.drivers.rabbitmq.management import Management
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.topology import Binding, Kind
from duesweep.queues.rabbitmq.verification import facts
from duesweep.queues.rabbitmq.verification.broker_rules import broker_findings
from duesweep.queues.rabbitmq.verification.delivery_rules import delivery_findings
from duesweep.queues.rabbitmq.verification.facts import BrokerFacts, ExchangeFacts, QueueFacts
from duesweep.queues.rabbitmq.verification.ladder_rules import ladder_findings, waiting_findings

_LADDER = topology.ladder()
_LEVEL = topology.level_name(3)
GOOD = BrokerFacts(
    "3.13.2",
    {"quorum_queue": True, "stream_queue": True},
    [],
    {one.name: ExchangeFacts("topic", is_durable=True) for one in _LADDER.exchanges},
    {one.name: QueueFacts(one.arguments) for one in _LADDER.queues},
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
        ({"version": "4.1.0", "feature_flags": {}}, {}),
        ({"version": "3.11.1", "feature_flags": {}}, {Check.FEATURE_FLAGS: Severity.FAULT}),
        (
            {"feature_flags": {"quorum_queue": True, "stream_queue": False}},
            {Check.FEATURE_FLAGS: Severity.FAULT},
        ),
        ({"feature_flags": None}, {Check.FEATURE_FLAGS: Severity.SKIPPED}),
        ({"alarms": None}, {Check.BROKER_ALARMS: Severity.SKIPPED}),
        ({"alarms": ["rabbit@a is short of memory"]}, {Check.BROKER_ALARMS: Severity.FAULT}),
    ],
)
def test_broker_is_judged(changed: dict[str, Any], bad: Mapping[Check, Severity]) -> None:
    found = _severities(list(broker_findings("queues.default", replace(GOOD, **changed))))

    fine = dict.fromkeys(
        (Check.SERVER_VERSION, Check.FEATURE_FLAGS, Check.BROKER_ALARMS), Severity.OK
    )
    assert found == fine | dict(bad)


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
    queue = replace(GOOD.queues[_LEVEL], policy=policy, policy_names="p")

    found = list(ladder_findings(replace(GOOD, queues={**GOOD.queues, _LEVEL: queue})))

    bad = [finding for finding in found if finding.severity is Severity.FAULT]
    assert [(one.check, one.about) for one in bad] == [(Check.LADDER_POLICY, _LEVEL)] * is_bad


def test_transient_exchange_is_a_fault() -> None:
    changed = {**GOOD.exchanges, _LEVEL: ExchangeFacts("topic", is_durable=False)}

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

    assert _severities(found) == {Check.DELIVERY_BINDING: bad or Severity.OK}


def test_exchange_may_lead_to_a_queue_by_others_and_in_circles() -> None:
    way = [(topology.DELIVERY_EXCHANGE, "A", "#.A"), ("A", "B", ""), ("B", "A", ""), ("B", "C", "")]
    circle = {Binding(source, to, Kind.EXCHANGE, key) for source, to, key in way}
    end = {Binding("C", "C", Kind.QUEUE)}

    dead = list(delivery_findings(replace(GOOD, bindings=GOOD.bindings | circle)))
    good = list(delivery_findings(replace(GOOD, bindings=GOOD.bindings | circle | end)))

    assert _severities(dead) == {Check.DELIVERY_BINDING: Severity.FAULT}
    assert _severities(good) == {Check.DELIVERY_BINDING: Severity.OK}


def test_waiting_messages_are_counted_and_those_of_the_first_ladder_warned_of() -> None:
    counts = {_LEVEL: 1_200, topology.level_name(4): 0, "nsb.delay-level-03": 5, "other": 9}

    waiting, first = waiting_findings(counts)

    assert waiting.severity is Severity.OK
    assert "1,200 on nsb.v2.delay-level-03" in waiting.found
    assert first.severity is Severity.WARNING
    assert first.found.startswith("5 messages")
    assert "delays migrate" in (first.advice or "")


def test_answers_are_read() -> None:
    queues = facts.queue_facts(
        [{"name": "q", "arguments": {"a": 1}, "policy": "p", "operator_policy": "o",
          "effective_policy_definition": {"expires": 5}},
         {"name": "r", "messages": 3, "policy": None, "effective_policy_definition": None}]
    )  # fmt: skip

    assert queues == {
        "q": QueueFacts({"a": 1}, 0, {"expires": 5}, "p, o"),
        "r": QueueFacts({}, 3, {}, ""),
    }
    assert facts.alarms(
        [{"name": "a", "mem_alarm": True, "disk_free_alarm": False},
         {"name": "b", "disk_free_alarm": True}, {"name": "c"}]
    ) == ["a is short of memory", "b is short of disk space"]  # fmt: skip


@pytest.mark.parametrize("url", ["127.0.0.1:15672", "ftp://host", "http://"])
def test_management_url_of_another_form_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"queues\.default\.management_url is not of the form"):
        Management(url, Brokers(("amqp://host",), "queues.default"))
