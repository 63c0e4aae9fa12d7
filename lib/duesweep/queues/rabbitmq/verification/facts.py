"""What a broker's management API says about a vhost, as values. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from duesweep.queues.rabbitmq.topology import Binding, Kind


@dataclass(frozen=True, slots=True)
class ExchangeFacts:
    """An exchange that exists."""

    kind: str
    is_durable: bool


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """A queue that exists. `policy` is what its policy and its operator policy set together;
    `policy_names` are their names.
    """

    arguments: Mapping[str, Any]
    messages: int = 0
    policy: Mapping[str, Any] = field(default_factory=dict)
    policy_names: str = ""


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """A vhost and its broker. `feature_flags` (by name, whether enabled) and `alarms` are None if
    this user may not see them.
    """

    version: str
    feature_flags: Mapping[str, bool] | None
    alarms: Sequence[str] | None
    exchanges: Mapping[str, ExchangeFacts]
    queues: Mapping[str, QueueFacts]
    bindings: frozenset[Binding]


def exchange_facts(answer: Sequence[Mapping[str, Any]]) -> dict[str, ExchangeFacts]:
    """Exchanges by their names."""
    return {one["name"]: ExchangeFacts(one["type"], one["durable"]) for one in answer}


def queue_facts(answer: Sequence[Mapping[str, Any]]) -> dict[str, QueueFacts]:
    """Queues by their names."""
    return {one["name"]: _queue(one) for one in answer}


def bindings(answer: Sequence[Mapping[str, Any]]) -> frozenset[Binding]:
    """All bindings except those that every queue has to the default exchange."""
    return frozenset(
        Binding(
            one["source"], one["destination"], Kind(one["destination_type"]), one["routing_key"]
        )
        for one in answer
        if one["source"]
    )


def alarms(answer: Sequence[Mapping[str, Any]]) -> list[str]:
    """What keeps nodes from taking messages."""
    names = {"mem_alarm": "memory", "disk_free_alarm": "disk space"}
    return [
        f"{node['name']} is short of {what}"
        for node in answer
        for key, what in names.items()
        if node.get(key)
    ]


def _queue(one: Mapping[str, Any]) -> QueueFacts:
    names = (one.get("policy"), one.get("operator_policy"))
    return QueueFacts(
        one.get("arguments", {}),
        # A new queue has no statistics yet.
        one.get("messages", 0),
        one.get("effective_policy_definition") or {},
        ", ".join(name for name in names if name),
    )
