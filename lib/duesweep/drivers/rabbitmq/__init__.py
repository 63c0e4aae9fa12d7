"""The driver of RabbitMQ: AMQP through pika, which nothing else imports, and the management API."""

from duesweep.drivers.rabbitmq.brokers import Brokers
from duesweep.drivers.rabbitmq.channel import Channel
from duesweep.drivers.rabbitmq.connection import RabbitMqConnection
from duesweep.drivers.rabbitmq.errors import (
    ACCESS_REFUSED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    ChannelClosedError,
    UnansweredError,
)
from duesweep.drivers.rabbitmq.management import Management, NotAllowedError
from duesweep.drivers.rabbitmq.publisher import Publisher
from duesweep.drivers.rabbitmq.values import Publication, PublishResult

__all__ = [
    "ACCESS_REFUSED",
    "NOT_FOUND",
    "PRECONDITION_FAILED",
    "Brokers",
    "Channel",
    "ChannelClosedError",
    "Management",
    "NotAllowedError",
    "Publication",
    "PublishResult",
    "Publisher",
    "RabbitMqConnection",
    "UnansweredError",
]
