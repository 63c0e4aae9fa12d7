"""Whether the endpoints that a sweep needs exist on a broker."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from duesweep.checks.finding import Check, Finding, fault, ok
from duesweep.drivers.rabbitmq.connection import Brokers, Channel, RabbitMqConnection
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.topology import Style, endpoint
from duesweep.queues.rabbitmq.verification.verify import Verification


@dataclass(frozen=True, slots=True)
class EndpointsQuestion:
    """`endpoints`: what each is for a sweep, and its name. `ladder`: None if the sweep needs no
    delay ladder.
    """

    brokers: Brokers
    style: Style
    endpoints: Sequence[tuple[str, str]]
    ladder: Verification | None

    def findings(self) -> Iterator[Finding]:
        """What is right and what is not. Raises `DuesweepError` if the broker is out of reach or
        refuses this user.
        """
        with RabbitMqConnection(self.brokers) as connection:
            channel = Channel(connection)
            if self.ladder is None:
                yield ok(Check.SERVER_REACHABLE, self.brokers.setting, "It lets this user in")
            for role, name in self.endpoints:
                yield _finding(channel, self.style, role, name)
        if self.ladder is not None:
            yield from self.ladder.findings()


def _finding(channel: Channel, style: Style, role: str, name: str) -> Finding:
    missing = " and ".join(topology.find_missing(channel, endpoint(style, name)).names)
    if missing:
        return fault(
            Check.TABLE_EXISTS,
            name,
            f"The {role} lacks {missing}: messages for it fail",
            f"Run `duesweep rabbitmq endpoint create {name}`, or correct the setting that names it",
        )
    return ok(Check.TABLE_EXISTS, name, f"The {role} is there")
