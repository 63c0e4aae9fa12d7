"""What AMQP alone tells about a delay ladder. It is declared again: the broker refuses what exists
but differs.
"""

from collections.abc import Iterator

from duesweep.checks.finding import Check, Finding, warning
from duesweep.drivers.rabbitmq.connection import Channel
from duesweep.drivers.rabbitmq.errors import PRECONDITION_FAILED, ChannelClosedError
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.topology import Kind, Topology
from duesweep.queues.rabbitmq.verification import ladder_rules


def ladder_findings(channel: Channel) -> Iterator[Finding]:
    """The ladder's exchanges and queues."""
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
        check = ladder_rules.CHECKS[kind]
        yield from bad or [ladder_rules.report_good(check, len(topologies), f"{kind}s")]


def count_messages(channel: Channel) -> dict[str, int]:
    """How many messages wait in those queues of both ladders that exist."""
    names = [
        topology.level_name(level, prefix)
        for prefix in (topology.FIRST_PREFIX, topology.PREFIX)
        for level in range(topology.LEVELS)
    ]
    return {
        name: topology.count(channel, name)
        for name in names
        if topology.is_there(channel, Kind.QUEUE, name)
    }


def _look(channel: Channel, kind: Kind, name: str, wanted: Topology) -> Iterator[Finding]:
    # Check that it exists first: declaring would create it.
    if not topology.is_there(channel, kind, name):
        yield ladder_rules.report_missing(kind, name)
        return
    try:
        topology.create(channel, wanted)
    except ChannelClosedError as error:
        if error.code == PRECONDITION_FAILED:
            yield ladder_rules.report_different(kind, name, str(error))
        else:
            yield warning(
                Check.MANAGEMENT_API,
                name,
                f"It could not be checked: {error}",
                "Set management_url, or verify with a user that may configure it",
            )
