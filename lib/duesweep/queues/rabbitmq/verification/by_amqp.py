"""What AMQP alone can tell of a delay ladder: declaring what is there again is refused where it is
different.
"""

from collections.abc import Iterator

from duesweep.checks.finding import Check, Finding, warning
from duesweep.drivers.rabbitmq import PRECONDITION_FAILED, Channel, ChannelClosedError
from duesweep.queues.rabbitmq import declare, ladder
from duesweep.queues.rabbitmq.topology import Kind, Topology
from duesweep.queues.rabbitmq.verification import ladder_rules


def ladder_findings(channel: Channel) -> Iterator[Finding]:
    """The ladder's exchanges and queues."""
    wanted = ladder.ladder()
    kinds = {
        Kind.EXCHANGE: {one.name: Topology(exchanges=(one,)) for one in wanted.exchanges},
        Kind.QUEUE: {one.name: Topology(queues=(one,)) for one in wanted.queues},
    }
    for kind, topologies in kinds.items():
        bad = [
            finding
            for name, topology in topologies.items()
            for finding in _look(channel, kind, name, topology)
        ]
        check = ladder_rules.CHECKS[kind]
        yield from bad or [ladder_rules.good(check, len(topologies), f"{kind}s")]


def messages(channel: Channel) -> dict[str, int]:
    """How many wait in the queues of either ladder that are there."""
    names = [
        ladder.level_name(level, prefix)
        for prefix in (ladder.FIRST_PREFIX, ladder.PREFIX)
        for level in range(ladder.LEVELS)
    ]
    return {
        name: declare.count(channel, name)
        for name in names
        if declare.is_there(channel, Kind.QUEUE, name)
    }


def _look(channel: Channel, kind: Kind, name: str, topology: Topology) -> Iterator[Finding]:
    # First whether it is there: what is not would be created.
    if not declare.is_there(channel, kind, name):
        yield ladder_rules.missing(kind, name)
        return
    try:
        declare.create(channel, topology)
    except ChannelClosedError as error:
        if error.code == PRECONDITION_FAILED:
            yield ladder_rules.different(kind, name, str(error))
        else:
            yield warning(
                Check.MANAGEMENT_API,
                name,
                f"Whether it is right is not known: {error}",
                "Set management_url, or verify with a user that may configure it",
            )
