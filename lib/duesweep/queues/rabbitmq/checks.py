"""Whether a broker lets out again what enters its delay ladder, and has the endpoints that sweeps
need. It is asked by the management API or, where that is not given, by AMQP alone. Changes nothing.
"""

import re
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
    Exchange,
    Kind,
    Style,
    Topology,
)

# The first version with at-least-once dead-lettering, which needs the feature flag of streams.
_OLDEST = (3, 10)
_FLAGS = ("quorum_queue", "stream_queue")
# From this version on they are always enabled; later versions do not list them.
_FLAGS_ALWAYS = (3, 12)
_LADDER = f"{topology.PREFIX}delay-…"
_CREATE = "Run `duesweep rabbitmq delays create`"
_REPLACE = "Move its messages, delete it, and run `duesweep rabbitmq delays create`"
_CHECKS = {Kind.EXCHANGE: Check.LADDER_EXCHANGE, Kind.QUEUE: Check.LADDER_QUEUE}
# The ladder's queues do not set these, so a policy's value would take effect.
_POLICY_KEYS = ("dead-letter-routing-key", "expires", "max-length", "max-length-bytes")
# What limits a queue's length.
_LIMITS = ("max-length", "max-length-bytes")
_ANY = topology.binding_key("")
_ALARMS = {"mem_alarm": "memory", "disk_free_alarm": "disk space"}

# An answer's entry, as the management API has it.
_Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Vhost:
    """The answers of the management API. `flags` and `nodes` are None if this user may not see
    them; `exchanges` and `queues` are by their names. `bindings` are without the ones that every
    queue has to the default exchange.
    """

    version: str
    flags: Sequence[_Row] | None
    nodes: Sequence[_Row] | None
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
    Raises `DuesweepError` if the broker is out of reach or refuses this user.
    """
    with RabbitMqConnection(brokers) as connection:
        channel = Channel(connection)
        if not needs_ladder:
            yield ok(Check.SERVER_REACHABLE, brokers.setting, "This user can log in")
        api = None if management_url is None else Management(management_url, brokers)
        for role, name in endpoints:
            found = _endpoint(channel, style, role, name)
            yield found
            if not is_to_mend(found):
                queue = _is_durable(channel, name) if api is None else _ask_queue(api, name)
                yield _losses(name, queue)
    if needs_ladder:
        yield from examine_ladder(brokers, management_url)


def examine_ladder(brokers: Brokers, management_url: str | None) -> Iterator[Finding]:
    """Findings on the delay ladder of a vhost; without `management_url`, only what AMQP tells.
    Raises `DuesweepError` if the broker is out of reach or refuses this user.
    """
    setting = brokers.setting
    with RabbitMqConnection(brokers) as connection:
        yield ok(Check.SERVER_REACHABLE, setting, "This user can log in")
        if management_url is None:
            channel = Channel(connection)
            yield _version(setting, connection.server_version)
            yield from _ladder_by_amqp(channel)
            yield from waiting_findings(_count_messages(channel))
            yield skipped(
                Check.MANAGEMENT_API,
                f"{setting}.management_url",
                "It is not set. AMQP does not report bindings, endpoints that cannot "
                "receive, policies, feature flags and alarms: these were not checked",
            )
            return
    found = _ask(Management(management_url, brokers))
    yield from broker_findings(setting, found)
    yield from ladder_findings(found)
    yield from delivery_findings(found)
    # A new queue has no statistics yet.
    yield from waiting_findings({name: q.get("messages", 0) for name, q in found.queues.items()})


def _ask(api: Management) -> Vhost:
    return Vhost(
        api.ask("overview")["rabbitmq_version"],
        _ask_if_allowed(api, "feature-flags"),
        _ask_if_allowed(api, "nodes"),
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


def _ask_if_allowed(api: Management, path: str) -> Sequence[_Row] | None:
    try:
        answer: Sequence[_Row] = api.ask(path)
    except NotAllowedError:
        return None
    return answer


def _endpoint(channel: Channel, style: Style, role: str, name: str) -> Finding:
    missing = " and ".join(topology.find_missing(channel, topology.endpoint(style, name)).names)
    if missing:
        return fault(
            Check.TABLE_EXISTS,
            name,
            f"The {role} lacks {missing}: messages for it fail",
            f"Run `duesweep rabbitmq endpoint create {name}`, or correct the setting that names it",
        )
    return ok(Check.TABLE_EXISTS, name, f"The {role} is there")


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


def _losses(name: str, queue: _Row) -> Finding:
    """Whether a queue can lose messages that the broker has confirmed."""
    policy = queue.get("effective_policy_definition") or {}
    limits = {key: queue.get("arguments", {}).get(f"x-{key}", policy.get(key)) for key in _LIMITS}
    overflow = queue.get("arguments", {}).get("x-overflow", policy.get("overflow", "drop-head"))
    reached = [f"{key} is {value:,}" for key, value in limits.items() if value is not None]
    if not queue.get("durable", True):
        return warning(
            Check.DURABILITY,
            name,
            "The queue is not durable: a restart of the broker deletes it with its messages",
            "When it is empty, delete it, and create it again as a durable queue",
        )
    if reached and overflow == "drop-head":
        return warning(
            Check.DURABILITY,
            name,
            f"{' and '.join(reached)}, and the queue drops its oldest messages to keep it: the "
            "broker confirms messages, and then deletes them",
            "Set overflow to reject-publish for this queue: then messages stay in the store",
        )
    return ok(Check.DURABILITY, name, "The queue keeps confirmed messages")


def _version(setting: str, version: str) -> Finding:
    """Whether a delay ladder works on this version of RabbitMQ."""
    if _number(version) < _OLDEST:
        text = f"RabbitMQ {version} lacks at-least-once dead-lettering, which the ladder needs"
        return fault(Check.SERVER_VERSION, setting, text, "Upgrade it to 3.10 or later")
    return ok(Check.SERVER_VERSION, setting, f"RabbitMQ {version}")


def broker_findings(setting: str, found: Vhost) -> Iterator[Finding]:
    """Whether a delay ladder works on this broker, and whether it takes messages now."""
    yield _version(setting, found.version)
    yield _flags(setting, found)
    yield _alarms(setting, found)


def _flags(setting: str, found: Vhost) -> Finding:
    if found.flags is None:
        return skipped(Check.FEATURE_FLAGS, setting, "This user may not see feature flags")
    is_always = _number(found.version) >= _FLAGS_ALWAYS
    enabled = {flag["name"]: flag["state"] == "enabled" for flag in found.flags}
    lacking = [flag for flag in _FLAGS if not enabled.get(flag, is_always)]
    if lacking:
        return fault(
            Check.FEATURE_FLAGS,
            setting,
            f"The ladder needs feature flags that are not enabled: {', '.join(lacking)}",
            f"On one of its nodes: rabbitmqctl enable_feature_flag {lacking[0]}",
        )
    return ok(Check.FEATURE_FLAGS, setting, f"{' and '.join(_FLAGS)} are enabled")


def _alarms(setting: str, found: Vhost) -> Finding:
    if found.nodes is None:
        return skipped(Check.BROKER_ALARMS, setting, "This user may not see alarms of nodes")
    alarms = [
        f"{node['name']} is short of {what}"
        for node in found.nodes
        for key, what in _ALARMS.items()
        if node.get(key)
    ]
    if alarms:
        text = f"RabbitMQ accepts no messages now: {'; '.join(alarms)}"
        return fault(Check.BROKER_ALARMS, setting, text, "Free memory or disk space there")
    return ok(Check.BROKER_ALARMS, setting, "No node is short of memory or disk space")


def _number(version: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def ladder_findings(found: Vhost) -> Iterator[Finding]:
    """All differences from the expected ladder."""
    wanted = topology.ladder()
    exchanges = [f for exchange in wanted.exchanges for f in _exchange(exchange, found)]
    yield from exchanges or [_good(Check.LADDER_EXCHANGE, len(wanted.exchanges), "exchanges")]
    queues = [f for queue in wanted.queues for f in _queue(queue, found)]
    yield from queues or [_good(Check.LADDER_QUEUE, len(wanted.queues), "queues")]
    policies = [f for queue in wanted.queues for f in _policy(queue, found)]
    yield from policies or [_good(Check.LADDER_POLICY, len(wanted.queues), "queues' policies")]
    bindings = [*_missing_bindings(wanted.bindings, found), *_strange(wanted.bindings, found)]
    yield from bindings or [_good(Check.LADDER_BINDING, len(wanted.bindings), "bindings")]


def _ladder_by_amqp(channel: Channel) -> Iterator[Finding]:
    """The ladder's exchanges and queues. They are declared again: the broker refuses what exists
    but differs.
    """
    wanted = topology.ladder()
    kinds = {
        Kind.EXCHANGE: {one.name: Topology(exchanges=(one,)) for one in wanted.exchanges},
        Kind.QUEUE: {one.name: Topology(queues=(one,)) for one in wanted.queues},
    }
    for kind, topologies in kinds.items():
        bad = [
            finding
            for name, one in topologies.items()
            for finding in _look(channel, kind, name, one)
        ]
        yield from bad or [_good(_CHECKS[kind], len(topologies), f"{kind}s")]


def _look(channel: Channel, kind: Kind, name: str, wanted: Topology) -> Iterator[Finding]:
    # Check that it exists first: declaring would create it.
    if not topology.is_there(channel, kind, name):
        yield _missing(kind, name)
        return
    try:
        topology.create(channel, wanted)
    except ChannelClosedError as error:
        if error.code == PRECONDITION_FAILED:
            yield _different(kind, name, str(error))
        else:
            yield warning(
                Check.MANAGEMENT_API,
                name,
                f"It could not be checked: {error}",
                "Set management_url, or verify with a user that may configure it",
            )


def _count_messages(channel: Channel) -> dict[str, int]:
    """How many messages wait in those queues of both ladders that exist."""
    names = [*_level_names(topology.FIRST_PREFIX), *_level_names(topology.PREFIX)]
    return {
        name: topology.count(channel, name)
        for name in names
        if topology.is_there(channel, Kind.QUEUE, name)
    }


def _missing(kind: Kind, name: str) -> Finding:
    """The finding for something that does not exist."""
    return fault(_CHECKS[kind], name, f"There is no such {kind}", _CREATE)


def _different(kind: Kind, name: str, found: str) -> Finding:
    """The finding for something that exists but differs."""
    return fault(_CHECKS[kind], name, found, _REPLACE)


def _good(check: Check, count: int, what: str) -> Finding:
    """The finding for things that are all as expected."""
    return ok(check, _LADDER, f"{count} {what} are correct")


def waiting_findings(messages: Mapping[str, int]) -> Iterator[Finding]:
    """How many messages wait on each level of both ladders. `messages`: for each existing queue."""
    yield from _waiting(messages)
    left = sum(messages.get(name, 0) for name in _level_names(topology.FIRST_PREFIX))
    first = f"{topology.FIRST_PREFIX}delay-…"
    if left:
        yield warning(
            Check.FIRST_LADDER,
            first,
            f"{left:,} messages wait on the first version's ladder, whose classic queues may lose "
            "them with a node",
            "Run `duesweep rabbitmq delays migrate` when no endpoint sends messages there any more",
        )
    else:
        yield ok(Check.FIRST_LADDER, first, "Nothing waits on the first version's ladder")


def _waiting(messages: Mapping[str, int]) -> Iterator[Finding]:
    counts = {name: messages.get(name, 0) for name in _level_names(topology.PREFIX)}
    shown = ", ".join(f"{count:,} on {name}" for name, count in counts.items() if count)
    text = f"Messages wait: {shown}. Look again: a level where they only ever grow is stuck"
    yield ok(Check.LADDER_WAITING, _LADDER, text if shown else "No messages wait")


def _level_names(prefix: str) -> list[str]:
    return [topology.level_name(level, prefix) for level in range(topology.LEVELS)]


def _exchange(wanted: Exchange, found: Vhost) -> Iterator[Finding]:
    row = found.exchanges.get(wanted.name)
    if row is None:
        yield _missing(Kind.EXCHANGE, wanted.name)
    elif row["type"] != wanted.kind or not row["durable"]:
        what = f"{'durable' if row['durable'] else 'transient'}, of type {row['type']}"
        text = f"It is {what}, and has to be durable, of type {wanted.kind}"
        yield _different(Kind.EXCHANGE, wanted.name, text)


def _queue(wanted: BrokerQueue, found: Vhost) -> Iterator[Finding]:
    row = found.queues.get(wanted.name)
    if row is None:
        yield _missing(Kind.QUEUE, wanted.name)
        return
    # A broker may leave out the type of a classic queue.
    arguments = {"x-queue-type": "classic", **row.get("arguments", {})}
    names = sorted(wanted.arguments.keys() | arguments.keys())
    differences = [
        f"{name} is {arguments.get(name, 'not set')}, not {wanted.arguments.get(name, 'unset')}"
        for name in names
        if arguments.get(name) != wanted.arguments.get(name)
    ]
    if differences:
        yield _different(Kind.QUEUE, wanted.name, "; ".join(differences))


def _policy(wanted: BrokerQueue, found: Vhost) -> Iterator[Finding]:
    row = found.queues.get(wanted.name, {})
    # The settings of the policy and the operator policy together.
    policy = row.get("effective_policy_definition") or {}
    harms = list(_harms(policy, int(wanted.arguments["x-message-ttl"])))
    if harms:
        names = ", ".join(filter(None, (row.get("policy"), row.get("operator_policy"))))
        yield fault(
            Check.LADDER_POLICY,
            wanted.name,
            f"Policy {names} sets {', '.join(harms)}: messages come early, elsewhere, or not at "
            "all",
            f"Let its pattern leave out names that begin with {topology.PREFIX}",
        )


def _harms(policy: _Row, ttl_ms: int) -> Iterator[str]:
    # The lower of the queue's and the policy's values takes effect.
    if policy.get("message-ttl", ttl_ms) < ttl_ms:
        yield f"message-ttl to {policy['message-ttl']}"
    yield from (f"{name} to {policy[name]}" for name in _POLICY_KEYS if name in policy)


def _missing_bindings(wanted: Iterable[Binding], found: Vhost) -> Iterator[Finding]:
    for binding in wanted:
        if binding not in found.bindings:
            text = f"{_describe(binding)} is missing: messages that need it are lost, or stay"
            yield fault(Check.LADDER_BINDING, binding.source, text, _CREATE)


def _strange(wanted: Iterable[Binding], found: Vhost) -> Iterator[Finding]:
    known, levels = set(wanted), set(_level_names(topology.PREFIX))
    for binding in sorted(found.bindings - known, key=_describe):
        # The answers leave out a queue's own binding to the default exchange.
        is_fed = binding.kind is Kind.QUEUE and binding.destination in levels
        if binding.source in levels or is_fed:
            yield fault(
                Check.LADDER_BINDING,
                binding.source,
                f"{_describe(binding)} is none of the ladder's: messages are doubled, or delayed "
                "that should not be",
                "Remove this binding",
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
    bound = sorted(
        (b for b in found.bindings if b.source == topology.DELIVERY_EXCHANGE),
        key=lambda binding: (binding.destination, binding.key),
    )
    bad = [*_unread(bound), *_dead_ends(bound, found.bindings), *_shared(bound)]
    count = len({binding.destination for binding in bound})
    text = f"{count} endpoints are bound, and can receive messages"
    yield from bad or [ok(Check.DELIVERY_BINDING, topology.DELIVERY_EXCHANGE, text)]


def _unread(bound: list[Binding]) -> Iterator[Finding]:
    for binding in bound:
        if not binding.key.startswith(_ANY) or binding.key == _ANY:
            yield warning(
                Check.DELIVERY_BINDING,
                binding.destination,
                f"{binding.kind} {binding.destination} is bound with the key {binding.key!r}, "
                "which is not of the form #.<endpoint>: it gets messages for others, or none",
                "Remove this binding, unless it is intended",
            )


def _dead_ends(bound: list[Binding], every: frozenset[Binding]) -> Iterator[Finding]:
    for binding in bound:
        if not _reaches_queue(binding.destination, binding.kind, every):
            name = binding.destination
            yield fault(
                Check.DELIVERY_BINDING,
                name,
                f"No queue is bound to exchange {name}: a delayed message for it stays on the last "
                "level of its way, and all others behind it",
                f"Run `duesweep rabbitmq endpoint create {name}`; or, when none of its messages "
                "wait any more, delete the exchange",
            )


def _reaches_queue(name: str, kind: Kind, every: frozenset[Binding]) -> bool:
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


def _shared(bound: list[Binding]) -> Iterator[Finding]:
    """Endpoints whose key also matches names of others: `#` matches any number of words."""
    for binding in bound:
        suffix = binding.key.removeprefix("#")
        others = sorted(
            {b.destination for b in bound if b.key != binding.key and b.key.endswith(suffix)}
        )
        if binding.key.startswith(_ANY) and binding.key != _ANY and others:
            yield warning(
                Check.DELIVERY_BINDING,
                binding.destination,
                f"The key {binding.key!r} also matches delayed messages of {', '.join(others)}: "
                f"{binding.destination} gets a copy of each",
                "Rename one of them: the transport's topology cannot tell them apart",
            )
