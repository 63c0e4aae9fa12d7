"""Rules for the bindings of the delivery exchange, which decide who gets what leaves the ladder.
No I/O.

A message that no queue takes there stays in its level's queue, and blocks all messages behind it
(NServiceBus.RabbitMQ#1407).
"""

from collections.abc import Iterator

from duesweep.checks.finding import Check, Finding, fault, ok, warning
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.topology import Binding, Kind
from duesweep.queues.rabbitmq.verification.facts import BrokerFacts

_ANY = topology.binding_key("")


def delivery_findings(facts: BrokerFacts) -> Iterator[Finding]:
    """Endpoints that get nothing, or messages of others."""
    found = sorted(
        (b for b in facts.bindings if b.source == topology.DELIVERY_EXCHANGE),
        key=lambda binding: (binding.destination, binding.key),
    )
    bad = [*_unread(found), *_dead_ends(found, facts), *_shared(found)]
    count = len({binding.destination for binding in found})
    text = f"{count} endpoints are bound, and can take what is for them"
    yield from bad or [ok(Check.DELIVERY_BINDING, topology.DELIVERY_EXCHANGE, text)]


def _unread(found: list[Binding]) -> Iterator[Finding]:
    for binding in found:
        if not binding.key.startswith(_ANY) or binding.key == _ANY:
            yield warning(
                Check.DELIVERY_BINDING,
                binding.destination,
                f"{binding.kind} {binding.destination} is bound with the key {binding.key!r}, "
                "which is not of the form #.<endpoint>: it gets messages for others, or none",
                "Remove this binding, unless it is intended",
            )


def _dead_ends(found: list[Binding], facts: BrokerFacts) -> Iterator[Finding]:
    for binding in found:
        if not _reaches_queue(binding.destination, binding.kind, facts):
            name = binding.destination
            yield fault(
                Check.DELIVERY_BINDING,
                name,
                f"No queue is bound to exchange {name}: a delayed message for it stays on the last "
                "level of its way, and all others behind it",
                f"Run `duesweep rabbitmq endpoint create {name}`; or, when none of its messages "
                "wait any more, delete the exchange",
            )


def _reaches_queue(name: str, kind: Kind, facts: BrokerFacts) -> bool:
    """Whether an exchange leads to any queue, with any key."""
    seen: set[str] = set()
    waiting = [(kind, name)]
    while waiting:
        kind, name = waiting.pop()
        if kind is Kind.QUEUE:
            return True
        if name not in seen:
            seen.add(name)
            waiting += [(b.kind, b.destination) for b in facts.bindings if b.source == name]
    return False


def _shared(found: list[Binding]) -> Iterator[Finding]:
    """Endpoints whose key also matches names of others: `#` matches any number of words."""
    for binding in found:
        suffix = binding.key.removeprefix("#")
        others = sorted(
            {b.destination for b in found if b.key != binding.key and b.key.endswith(suffix)}
        )
        if binding.key.startswith(_ANY) and binding.key != _ANY and others:
            yield warning(
                Check.DELIVERY_BINDING,
                binding.destination,
                f"The key {binding.key!r} also matches delayed messages of {', '.join(others)}: "
                f"{binding.destination} gets a copy of each",
                "Rename one of them: the transport's topology cannot tell them apart",
            )
