"""The driver of RabbitMQ: AMQP through pika, which nothing else imports.

`management` is imported on its own: only the checks of a broker need HTTP, which is slow to load.
"""

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
from duesweep.drivers.rabbitmq.publisher import Publisher
from duesweep.drivers.rabbitmq.values import Publication, PublishResult

__all__ = [
    "ACCESS_REFUSED",
    "NOT_FOUND",
    "PRECONDITION_FAILED",
    "Brokers",
    "Channel",
    "ChannelClosedError",
    "Publication",
    "PublishResult",
    "Publisher",
    "RabbitMqConnection",
    "UnansweredError",
]
