"""The transports' own operations on queue tables, as a library.

`PostgreSqlTransport` and `SqlServerTransport`, each in the module of that name, are the locations
of queues. `open_session` opens a session on one. A `Receiver` passes its messages to a function.
"""

from duesweep.core.message import OutgoingMessage, ReceivedMessage
from duesweep.queues.operations.options import ReceiverOptions
from duesweep.queues.operations.queue_table import QueueTable
from duesweep.queues.operations.receiver import Receiver
from duesweep.queues.operations.session import TransportSession, open_session
from duesweep.queues.operations.subscriptions import SUBSCRIPTION_TABLE, Subscriptions
from duesweep.queues.operations.worker import Handle

__all__ = [
    "SUBSCRIPTION_TABLE",
    "Handle",
    "OutgoingMessage",
    "QueueTable",
    "ReceivedMessage",
    "Receiver",
    "ReceiverOptions",
    "Subscriptions",
    "TransportSession",
    "open_session",
]
