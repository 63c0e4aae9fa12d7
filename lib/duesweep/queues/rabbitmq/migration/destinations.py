"""The destinations of migrated messages. A message that cannot leave the ladder must not enter it:
it would block all messages of its level (NServiceBus.RabbitMQ#1407).
"""

from collections.abc import Iterator

from duesweep.drivers.rabbitmq.connection import Channel
from duesweep.drivers.rabbitmq.errors import ChannelClosedError
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.migration.plan import POISON_QUEUE
from duesweep.queues.rabbitmq.topology import BrokerQueue, Kind, Style, Topology


class MigrationDestinations:
    """Each destination is looked for once, and bound to the delivery exchange."""

    def __init__(self, channel: Channel, style: Style) -> None:
        self._channel = channel
        self._style = style
        self._problems: dict[str, str | None] = {}
        self._takes_poison = False

    def problem(self, name: str) -> str | None:
        """Why messages for an endpoint cannot enter the ladder; None if they can."""
        if name not in self._problems:
            self._problems[name] = self._prepare(name)
        return self._problems[name]

    def create_poison_queue(self) -> None:
        """Create the queue for poison if it does not exist."""
        if not self._takes_poison and not topology.is_there(
            self._channel, Kind.QUEUE, POISON_QUEUE
        ):
            # Without arguments, as NServiceBus's own tool declares it.
            topology.create(self._channel, Topology(queues=(BrokerQueue(POISON_QUEUE, {}),)))
        self._takes_poison = True

    def _prepare(self, name: str) -> str | None:
        try:
            for kind in self._kinds():
                if not topology.is_there(self._channel, kind, name):
                    return f"there is no {kind} {name}; run `duesweep rabbitmq endpoint create`"
            for binding in topology.way_out(self._style, name):
                topology.bind(self._channel, binding)
        except ChannelClosedError as error:
            return str(error)
        return None

    def _kinds(self) -> Iterator[Kind]:
        yield Kind.QUEUE
        if self._style is Style.CONVENTIONAL:
            yield Kind.EXCHANGE
