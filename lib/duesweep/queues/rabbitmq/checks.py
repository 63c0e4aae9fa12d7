"""Whether a broker lets out again what enters its delay ladder, and has the endpoints that sweeps
need. It is asked by the management API or, where that is not given, by AMQP alone. Changes nothing.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from duesweep.core.errors import ConfigError
from duesweep.core.finding import Check, Finding, fault, is_to_mend, ok, skipped, warning
from duesweep.drivers.rabbitmq.connection import Brokers, Channel, RabbitMqConnection
from duesweep.drivers.rabbitmq.errors import PRECONDITION_FAILED, ChannelClosedError
from duesweep.drivers.rabbitmq.management import Management, NotAllowedError
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.topology import (
    Binding,
    BrokerQueue,
    Kind,
    Style,
    Topology,
)
from duesweep.queues.tables import CREATE, ERROR, OWN

# The first version with at-least-once dead-lettering, which needs the feature flag of streams.
_OLDEST = (3, 10)
_FLAGS = ("quorum_queue", "stream_queue")
# From this version on they are always enabled; later versions do not list them.
_FLAGS_ALWAYS = (3, 12)
_CREATE = "run `duesweep rabbitmq delays create`"
_REPLACE = "move its messages, delete it, and run `duesweep rabbitmq delays create`"
_CHECKS = {Kind.EXCHANGE: Check.LADDER_EXCHANGE, Kind.QUEUE: Check.LADDER_QUEUE}
# The ladder's queues do not set these, so a policy's value would take effect.
_POLICY_KEYS = ("dead-letter-routing-key", "expires", "max-length", "max-length-bytes")
# What limits a queue's length.
_LIMITS = ("max-length", "max-length-bytes")
# The roles of queues that settings name.
_OF_SETTINGS = {OWN, ERROR}
_ANY = topology.binding_key("")

# An answer's entry, as the management API has it.
_Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Vhost:
    """The answers of the management API. `flags` is None if this user may not see them; `exchanges`
    and `queues` are by their names. `bindings` are without the ones that every queue has to the
    default exchange.
    """

    version: str
    flags: Sequence[_Row] | None
    exchanges: Mapping[str, _Row]
    queues: Mapping[str, _Row]
    bindings: frozenset[Binding]


def examine(
    brokers: Brokers,
    endpoints: Sequence[tuple[str, str]],
    style: Style,
    *,
    needs_ladder: bool,
    management_url: str | None,
) -> Iterator[Finding]:
    """Findings on a connection's brokers. `endpoints`: the role of each in a sweep, and its name.
    Without `management_url` AMQP alone is asked. Raises `DuesweepError` if the broker is out of
    reach or refuses this user.
    """
    setting = brokers.setting
    with RabbitMqConnection(brokers) as connection:
        channel, version = Channel(connection), connection.server_version
        yield ok(Check.SERVER_REACHABLE, setting, f"RabbitMQ {version} lets this user in")
        api = None if management_url is None else Management(management_url, brokers)
        for role, name in endpoints:
            wanted = topology.endpoint(style, name)
            if role not in _OF_SETTINGS and style is Style.CONVENTIONAL:
                # A sweep needs no more. It may lead to a queue of any name.
                wanted = Topology(exchanges=wanted.exchanges)
            try:
                absent = topology.find_missing(channel, wanted).names
            except ChannelClosedError as error:
                text = f"The {role} is unavailable: {error}. Messages for it wait"
                yield fault(Check.TABLE_EXISTS, name, text, "start the node of the cluster")
                continue
            if absent:
                text = f"The {role} lacks {' and '.join(absent)}: messages for it fail"
                advice = f"{_create(name)}, or correct the setting"
                advice = f"{advice} that names it" if role in _OF_SETTINGS else CREATE[role]
                yield fault(Check.TABLE_EXISTS, name, text, advice)
            elif role in _OF_SETTINGS or api is not None:
                queue = _is_durable(channel, name) if api is None else _ask_queue(api, name)
                yield from _losses(name, queue)
        if needs_ladder:
            found = [*_ladder(setting, channel, version, api)]
            yield from found
            # AMQP does not show how it is bound.
            if api is not None and not any(map(is_to_mend, found)):
                text = "The ladder lets all out again"
                yield ok(Check.LADDER_QUEUE, f"{topology.PREFIX}delay-…", text)


def _ladder(
    setting: str, channel: Channel, version: str, api: Management | None
) -> Iterator[Finding]:
    """Findings on the delay ladder of a vhost."""
    if api is None:
        yield from _version(setting, version)
        yield from _ladder_by_amqp(channel)
        yield skipped(
            Check.MANAGEMENT_API,
            f"{setting}.management_url",
            "It is not set. AMQP does not report bindings, endpoints that cannot receive, policies "
            "and feature flags: these were not checked",
        )
    else:
        vhost = _ask(api, version)
        yield from broker_findings(setting, vhost)
        yield from ladder_findings(vhost)
        yield from delivery_findings(vhost)
    yield from _first_ladder(channel)


def _ask(api: Management, version: str) -> Vhost:
    try:
        flags = api.ask("feature-flags")
    except NotAllowedError:
        flags = None
    return Vhost(
        version,
        flags,
        {one["name"]: one for one in api.ask("exchanges/{vhost}")},
        {one["name"]: one for one in api.ask("queues/{vhost}")},
        frozenset(
            Binding(
                one["source"], one["destination"], Kind(one["destination_type"]), one["routing_key"]
            )
            for one in api.ask("bindings/{vhost}")
            if one["source"]
        ),
    )


def _is_durable(channel: Channel, name: str) -> _Row:
    """Whether a queue is durable, by AMQP alone: it is declared again as a durable queue."""
    try:
        topology.create(channel, Topology(queues=(BrokerQueue(name, {}),)))
    except ChannelClosedError as error:
        # The broker compares this before the arguments, and needs a right that sweeps do not.
        return {"durable": "'durable'" not in str(error)}
    return {}


def _ask_queue(api: Management, name: str) -> _Row:
    """The queue as the management API describes it; empty if this user may not see it."""
    try:
        answer: _Row = api.ask(f"queues/{{vhost}}/{quote(name, safe='')}")
    except ConfigError:
        return {}
    return answer


def _losses(name: str, queue: _Row) -> Iterator[Finding]:
    """Whether a queue can lose messages that the broker has confirmed."""
    policy = queue.get("effective_policy_definition") or {}
    limits = {key: queue.get("arguments", {}).get(f"x-{key}", policy.get(key)) for key in _LIMITS}
    overflow = queue.get("arguments", {}).get("x-overflow", policy.get("overflow", "drop-head"))
    reached = [f"{key} is {value:,}" for key, value in limits.items() if value is not None]
    if not queue.get("durable", True):
        yield warning(
            Check.DURABILITY,
            name,
            "The queue is not durable: a restart of the broker deletes it with its messages",
            "when it is empty, delete it, and create it again as a durable queue",
        )
    elif reached and overflow == "drop-head":
        yield warning(
            Check.DURABILITY,
            name,
            f"{' and '.join(reached)}, and the queue drops its oldest messages to keep it: the "
            "broker confirms messages, and then deletes them",
            "set overflow to reject-publish for this queue: then messages stay in the store",
        )


def _version(setting: str, version: str) -> Iterator[Finding]:
    """Whether a delay ladder works on this version of RabbitMQ."""
    if _number(version) < _OLDEST:
        text = f"RabbitMQ {version} lacks at-least-once dead-lettering, which the ladder needs"
        yield fault(Check.SERVER_VERSION, setting, text, "upgrade it to 3.10 or later")


def _number(version: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def broker_findings(setting: str, found: Vhost) -> Iterator[Finding]:
    """Whether a delay ladder works on this broker."""
    yield from _version(setting, found.version)
    is_always = _number(found.version) >= _FLAGS_ALWAYS
    enabled = {flag["name"]: flag["state"] == "enabled" for flag in found.flags or ()}
    lacking = [flag for flag in _FLAGS if not enabled.get(flag, is_always)]
    if found.flags is None:
        yield skipped(Check.FEATURE_FLAGS, setting, "This user may not see feature flags")
    elif lacking:
        text = f"The ladder needs feature flags that are not enabled: {', '.join(lacking)}"
        advice = f"on one of its nodes: rabbitmqctl enable_feature_flag {lacking[0]}"
        yield fault(Check.FEATURE_FLAGS, setting, text, advice)


def ladder_findings(found: Vhost) -> Iterator[Finding]:
    """All differences from the expected ladder."""
    wanted = topology.ladder()
    for one in wanted.exchanges:
        expected = {"type": one.kind, "durable": True}
        there = found.exchanges.get(one.name)
        has = there and {name: there[name] for name in expected}
        yield from _differences(Kind.EXCHANGE, one.name, expected, has)
    for queue in wanted.queues:
        row = found.queues.get(queue.name)
        # A broker may leave out the type of a classic queue.
        has = row and {"x-queue-type": "classic", **row.get("arguments", {})}
        yield from _differences(Kind.QUEUE, queue.name, queue.arguments, has)
        yield from _policy(queue, row or {})
    for binding in wanted.bindings:
        if binding not in found.bindings:
            text = f"{_describe(binding)} is missing: messages that need it are lost, or stay"
            yield fault(Check.LADDER_BINDING, binding.source, text, _CREATE)
    levels = set(_level_names(topology.PREFIX))
    for binding in sorted(found.bindings - set(wanted.bindings), key=_describe):
        # The answers leave out a queue's own binding to the default exchange.
        is_fed = binding.kind is Kind.QUEUE and binding.destination in levels
        if binding.source in levels or is_fed:
            text = "is none of the ladder's: messages are doubled, or delayed that should not be"
            yield fault(
                Check.LADDER_BINDING,
                binding.source,
                f"{_describe(binding)} {text}",
                "remove this binding",
            )


def _differences(kind: Kind, name: str, wanted: _Row, found: _Row | None) -> Iterator[Finding]:
    if found is None:
        yield _missing(kind, name)
    elif differences := [
        f"{key} is {found.get(key, 'not set')}, not {wanted.get(key, 'unset')}"
        for key in sorted(wanted.keys() | found.keys())
        if found.get(key) != wanted.get(key)
    ]:
        yield fault(_CHECKS[kind], name, "; ".join(differences), _REPLACE)


def _policy(wanted: BrokerQueue, row: _Row) -> Iterator[Finding]:
    """The settings of the policy and the operator policy together."""
    policy = row.get("effective_policy_definition") or {}
    ttl = wanted.arguments["x-message-ttl"]
    # The lower of the queue's and the policy's values takes effect.
    harmful = ["message-ttl"] if policy.get("message-ttl", ttl) < ttl else []
    harmful += [name for name in _POLICY_KEYS if name in policy]
    if harmful:
        names = ", ".join(filter(None, (row.get("policy"), row.get("operator_policy"))))
        sets = ", ".join(f"{name} to {policy[name]}" for name in harmful)
        text = f"Policy {names} sets {sets}: messages come early, elsewhere, or not at all"
        advice = f"let its pattern leave out names that begin with {topology.PREFIX}"
        yield fault(Check.LADDER_POLICY, wanted.name, text, advice)


def _ladder_by_amqp(channel: Channel) -> Iterator[Finding]:
    """The ladder's exchanges and queues. They are declared again: the broker refuses what exists
    but differs.
    """
    wanted = topology.ladder()
    parts = [(Kind.EXCHANGE, one.name, Topology(exchanges=(one,))) for one in wanted.exchanges]
    parts += [(Kind.QUEUE, one.name, Topology(queues=(one,))) for one in wanted.queues]
    for kind, name, part in parts:
        # Check that it exists first: declaring would create it.
        if not topology.is_there(channel, kind, name):
            yield _missing(kind, name)
            continue
        try:
            topology.create(channel, part)
        except ChannelClosedError as error:
            if error.code == PRECONDITION_FAILED:
                yield fault(_CHECKS[kind], name, str(error), _REPLACE)
            else:
                text = f"It could not be checked: {error}"
                advice = "set management_url, or verify with a user that may configure it"
                yield warning(Check.MANAGEMENT_API, name, text, advice)


def _missing(kind: Kind, name: str) -> Finding:
    return fault(_CHECKS[kind], name, f"There is no such {kind}", _CREATE)


def _level_names(prefix: str) -> list[str]:
    return [topology.level_name(level, prefix) for level in range(topology.LEVELS)]


def _first_ladder(channel: Channel) -> Iterator[Finding]:
    """A warning of messages that wait on the first version's ladder."""
    waiting = sum(
        topology.count(channel, name)
        for name in _level_names(topology.FIRST_PREFIX)
        if topology.is_there(channel, Kind.QUEUE, name)
    )
    if waiting:
        yield warning(
            Check.FIRST_LADDER,
            f"{topology.FIRST_PREFIX}delay-…",
            f"{waiting:,} messages wait on the first version's ladder, whose classic queues may "
            "lose them with a node",
            "run `duesweep rabbitmq delays migrate` when no endpoint sends messages there any more",
        )


def _describe(binding: Binding) -> str:
    return (
        f"The binding {binding.source} → {binding.kind} {binding.destination} "
        f"with the key {binding.key!r}"
    )


def delivery_findings(found: Vhost) -> Iterator[Finding]:
    """Endpoints that get nothing from the ladder, or messages of others. A message that
    no queue takes stays in its level's queue, and blocks all behind it (NServiceBus.RabbitMQ#1407).
    """
    check = Check.DELIVERY_BINDING
    bound = [b for b in found.bindings if b.source == topology.DELIVERY_EXCHANGE]
    for binding in sorted(bound, key=lambda binding: (binding.destination, binding.key)):
        name, key = binding.destination, binding.key
        # `#` matches any number of words.
        others = {b.destination for b in bound if b.key != key and b.key.endswith(key[1:])}
        if not key.startswith(_ANY) or key == _ANY:
            text = f"{binding.kind} {name} is bound with the key {key!r}, which is not of the form "
            text += "#.<endpoint>: it gets messages for others, or none"
            yield warning(check, name, text, "remove this binding, unless it is intended")
        elif others:
            text = f"The key {key!r} also matches delayed messages of {', '.join(sorted(others))}: "
            text += f"{name} gets a copy of each"
            advice = "rename one of them: the transport's topology cannot tell them apart"
            yield warning(check, name, text, advice)
        if not _reaches_queue(name, binding.kind, found.bindings):
            yield fault(
                check,
                name,
                f"No queue is bound to exchange {name}: a delayed message for it stays on the last "
                "level of its way, and all others behind it",
                f"{_create(name)}; or, when none of its messages wait any more, delete the "
                "exchange",
            )


def _create(name: str) -> str:
    """The advice to create an endpoint. Others may have chosen its name: a shell takes all of it
    for a name.
    """
    return f"run `duesweep rabbitmq endpoint create {shlex.quote(name)}`"


def _reaches_queue(name: str, kind: Kind, every: Iterable[Binding]) -> bool:
    """Whether an exchange leads to any queue, with any key."""
    seen: set[str] = set()
    waiting = [(kind, name)]
    while waiting:
        kind, name = waiting.pop()
        if kind is Kind.QUEUE:
            return True
        if name not in seen:
            seen.add(name)
            waiting += [(b.kind, b.destination) for b in every if b.source == name]
    return False
