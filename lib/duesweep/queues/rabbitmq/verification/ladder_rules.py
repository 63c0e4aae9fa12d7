"""Rules for the ladder's own exchanges, queues and bindings. No I/O."""

from collections.abc import Iterable, Iterator, Mapping

from duesweep.checks.finding import Check, Finding, fault, ok, warning
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.topology import Binding, BrokerQueue, Exchange, Kind
from duesweep.queues.rabbitmq.verification.facts import BrokerFacts, QueueFacts

LADDER = f"{topology.PREFIX}delay-…"
CREATE = "Run `duesweep rabbitmq delays create`"
REPLACE = "Move what it holds, delete it, and run `duesweep rabbitmq delays create`"
CHECKS = {Kind.EXCHANGE: Check.LADDER_EXCHANGE, Kind.QUEUE: Check.LADDER_QUEUE}
# The ladder's queues do not set these, so a policy's value would take effect.
_POLICY_KEYS = ("dead-letter-routing-key", "expires", "max-length", "max-length-bytes")


def ladder_findings(facts: BrokerFacts) -> Iterator[Finding]:
    """All differences from the expected ladder."""
    wanted = topology.ladder()
    exchanges = [f for exchange in wanted.exchanges for f in _exchange(exchange, facts)]
    yield from exchanges or [report_good(Check.LADDER_EXCHANGE, len(wanted.exchanges), "exchanges")]
    queues = [f for queue in wanted.queues for f in _queue(queue, facts)]
    yield from queues or [report_good(Check.LADDER_QUEUE, len(wanted.queues), "queues")]
    policies = [f for queue in wanted.queues for f in _policy(queue, facts)]
    yield from policies or [
        report_good(Check.LADDER_POLICY, len(wanted.queues), "queues' policies")
    ]
    bindings = [*_missing(wanted.bindings, facts), *_strange(wanted.bindings, facts)]
    yield from bindings or [report_good(Check.LADDER_BINDING, len(wanted.bindings), "bindings")]


def report_missing(kind: Kind, name: str) -> Finding:
    """The finding for something that does not exist."""
    return fault(CHECKS[kind], name, f"There is no such {kind}", CREATE)


def report_different(kind: Kind, name: str, found: str) -> Finding:
    """The finding for something that exists but differs."""
    return fault(CHECKS[kind], name, found, REPLACE)


def report_good(check: Check, count: int, what: str) -> Finding:
    """The finding for things that are all as expected."""
    return ok(check, LADDER, f"{count} {what} are as they have to be")


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
            "Run `duesweep rabbitmq delays migrate` when nobody sends them there any more",
        )
    else:
        yield ok(Check.FIRST_LADDER, first, "Nothing waits on the first version's ladder")


def _waiting(messages: Mapping[str, int]) -> Iterator[Finding]:
    counts = {name: messages.get(name, 0) for name in _level_names(topology.PREFIX)}
    shown = ", ".join(f"{count:,} on {name}" for name, count in counts.items() if count)
    text = f"Messages wait: {shown}. Look again: a level where they only ever grow is stuck"
    yield ok(Check.LADDER_WAITING, LADDER, text if shown else "No messages wait")


def _level_names(prefix: str) -> list[str]:
    return [topology.level_name(level, prefix) for level in range(topology.LEVELS)]


def _exchange(wanted: Exchange, facts: BrokerFacts) -> Iterator[Finding]:
    found = facts.exchanges.get(wanted.name)
    if found is None:
        yield report_missing(Kind.EXCHANGE, wanted.name)
    elif found.kind != wanted.kind or not found.is_durable:
        what = f"{'durable' if found.is_durable else 'transient'}, of type {found.kind}"
        text = f"It is {what}, and has to be durable, of type {wanted.kind}"
        yield report_different(Kind.EXCHANGE, wanted.name, text)


def _queue(wanted: BrokerQueue, facts: BrokerFacts) -> Iterator[Finding]:
    found = facts.queues.get(wanted.name)
    if found is None:
        yield report_missing(Kind.QUEUE, wanted.name)
        return
    # A broker may leave out the type of a classic queue.
    arguments = {"x-queue-type": "classic", **found.arguments}
    names = sorted(wanted.arguments.keys() | arguments.keys())
    differences = [
        f"{name} is {arguments.get(name, 'not set')}, not {wanted.arguments.get(name, 'unset')}"
        for name in names
        if arguments.get(name) != wanted.arguments.get(name)
    ]
    if differences:
        yield report_different(Kind.QUEUE, wanted.name, "; ".join(differences))


def _policy(wanted: BrokerQueue, facts: BrokerFacts) -> Iterator[Finding]:
    found = facts.queues.get(wanted.name)
    if found is not None:
        harms = list(_harms(found, int(wanted.arguments["x-message-ttl"])))
        if harms:
            yield fault(
                Check.LADDER_POLICY,
                wanted.name,
                f"Policy {found.policy_names} sets {', '.join(harms)}: messages come early, "
                "elsewhere, or not at all",
                f"Let its pattern leave out what begins with {topology.PREFIX}",
            )


def _harms(found: QueueFacts, ttl_ms: int) -> Iterator[str]:
    policy = found.policy
    # The lower of the queue's and the policy's values takes effect.
    if policy.get("message-ttl", ttl_ms) < ttl_ms:
        yield f"message-ttl to {policy['message-ttl']}"
    yield from (f"{name} to {policy[name]}" for name in _POLICY_KEYS if name in policy)


def _missing(wanted: Iterable[Binding], facts: BrokerFacts) -> Iterator[Finding]:
    for binding in wanted:
        if binding not in facts.bindings:
            text = f"{_describe(binding)} is missing: messages that need it are lost, or stay"
            yield fault(Check.LADDER_BINDING, binding.source, text, CREATE)


def _strange(wanted: Iterable[Binding], facts: BrokerFacts) -> Iterator[Finding]:
    known, levels = set(wanted), set(_level_names(topology.PREFIX))
    for binding in sorted(facts.bindings - known, key=_describe):
        # The facts leave out a queue's own binding to the default exchange.
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
