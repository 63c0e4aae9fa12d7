"""The transports' own operations on queue tables, as a library.

`transport_of` (`duesweep.config.adapters.transport`) finds the queues of a configuration, and its
`connect` opens a session on them. A `Receiver` passes their messages to a function.
"""

from duesweep.core.message import OutgoingMessage, ReceivedMessage
from duesweep.queues.tables import SUBSCRIPTION_TABLE
from duesweep.queues.transport.receiver import Handle, Receiver, ReceiverOptions
from duesweep.queues.transport.session import (
    QueueTable,
    Subscriptions,
    Transport,
    TransportSession,
)

__all__ = [
    "SUBSCRIPTION_TABLE",
    "Handle",
    "OutgoingMessage",
    "QueueTable",
    "ReceivedMessage",
    "Receiver",
    "ReceiverOptions",
    "Subscriptions",
    "Transport",
    "TransportSession",
]
