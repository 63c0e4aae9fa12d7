"""pika: a connection with a thread, confirms by thousands, and whose fault an error is. Nobody else
imports it. Beside it the broker's management API.
"""

from duesweep.drivers.rabbitmq.brokers import Brokers
from duesweep.drivers.rabbitmq.channel import Channel
from duesweep.drivers.rabbitmq.connection import RabbitMqConnection
from duesweep.drivers.rabbitmq.consumer import Consumer
from duesweep.drivers.rabbitmq.encoded import Encoded
from duesweep.drivers.rabbitmq.errors import (
    ACCESS_REFUSED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    ChannelClosedError,
    UnansweredError,
)
from duesweep.drivers.rabbitmq.management import Management, NotAllowedError
from duesweep.drivers.rabbitmq.publisher import Publisher
from duesweep.drivers.rabbitmq.values import Copy, Delivery, Publication, PublishResult

__all__ = [
    "ACCESS_REFUSED",
    "NOT_FOUND",
    "PRECONDITION_FAILED",
    "Brokers",
    "Channel",
    "ChannelClosedError",
    "Consumer",
    "Copy",
    "Delivery",
    "Encoded",
    "Management",
    "NotAllowedError",
    "Publication",
    "PublishResult",
    "Publisher",
    "RabbitMqConnection",
    "UnansweredError",
]
