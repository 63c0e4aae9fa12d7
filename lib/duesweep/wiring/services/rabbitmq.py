"""Brokers of RabbitMQ, for the doctor."""

from collections.abc import Callable, Iterator, Sequence

from duesweep.checks.finding import Finding
from duesweep.config import Config
from duesweep.doctor.examine import Service
from duesweep.doctor.spark import Needs
from duesweep.queues.rabbitmq.topology import Style
from duesweep.queues.rabbitmq.verification.endpoints import EndpointsQuestion
from duesweep.queues.rabbitmq.verification.verify import Verification
from duesweep.wiring.dialects import QueueConnection
from duesweep.wiring.rabbitmq import brokers


def service(
    config: Config,  # noqa: ARG001 - as for a database
    connection: QueueConnection | None,
    queues: Callable[[], Sequence[tuple[str, str]]],
) -> Service:
    """A connection's brokers, with these endpoints, and the delay ladder if sweeps need it."""
    assert connection is not None  # a store is in a database
    section, where = connection.section, brokers(connection)
    url = section.management_url
    ladder = Verification(where, url.get_secret_value() if url else None)
    ladder_wanted = ladder if connection.needs_ladder else None

    def findings() -> Iterator[Finding]:
        style = Style(section.topology)
        return EndpointsQuestion(where, style, queues(), ladder_wanted).findings()

    return Service(connection.setting, findings)


def waiting(config: Config, most: int) -> Sequence[str]:  # noqa: ARG001 - a store is in a database
    """None: no store is on a broker."""
    return ()


def needs(dsns: Sequence[str]) -> Needs:  # noqa: ARG001 - whatever they are
    """What executors have to load."""
    return Needs(["pika"])
