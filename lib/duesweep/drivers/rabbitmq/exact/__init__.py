"""Messages that are taken from a queue and published again byte for byte.

Only the migration between delay ladders needs this, and only it imports this package.
"""

from duesweep.drivers.rabbitmq.exact.connection import ExactRabbitMqConnection
from duesweep.drivers.rabbitmq.exact.consumer import Consumer
from duesweep.drivers.rabbitmq.exact.encoded import Encoded
from duesweep.drivers.rabbitmq.exact.values import Copy, Delivery

__all__ = ["Consumer", "Copy", "Delivery", "Encoded", "ExactRabbitMqConnection"]
