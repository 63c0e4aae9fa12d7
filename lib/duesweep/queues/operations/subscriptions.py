"""The table of subscriptions: which endpoint receives which topic, at which address."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from duesweep.core.errors import ConfigError
from duesweep.queues.base import Destination
from duesweep.queues.tables import SUBSCRIPTION_TABLE

if TYPE_CHECKING:
    from duesweep.queues.operations.base import QueueDialect


__all__ = ["SUBSCRIPTION_TABLE", "Subscriptions"]

# The length of the table's columns.
_LONGEST = 200


class Subscriptions:
    """One table of subscriptions on one session; a topic is a type's full name."""

    def __init__(self, dialect: "QueueDialect", table: Destination) -> None:
        self._dialect = dialect
        self._table = table
        self._statements = dialect.named({"subscriptions": table})

    def create(self) -> None:
        """Create the table unless it exists. Several processes may do so at once."""
        self._dialect.create("create_subscriptions", "subscriptions", self._table)

    def subscribe(self, endpoint: str, address: str, topic: str) -> None:
        """Let messages published under `topic` go to the queue at `address` for this endpoint. An
        older subscription of the endpoint to the topic is replaced.
        """
        queue_address = str(self._dialect.addresses.parse(address))
        names = {"endpoint": endpoint, "queue_address": queue_address, "topic": topic}
        self._check(**names)
        with self._dialect.transaction():
            self._statements.execute("subscribe", **names)

    def unsubscribe(self, endpoint: str, topic: str) -> bool:
        """End a subscription. Returns whether there was one."""
        self._check(endpoint=endpoint, topic=topic)
        removed = self._statements.execute("unsubscribe", endpoint=endpoint, topic=topic)
        return removed > 0

    def subscribers(self, topics: Sequence[str]) -> Sequence[str]:
        """The addresses that are subscribed to any of these topics, each once, sorted."""
        self._check(**{f"topic {topic[:20]}": topic for topic in topics})
        found = set()
        # One query for each topic. An IN list would need a statement for each number of topics. A
        # list in JSON would be compared in the collation of another database.
        for topic in topics:
            rows = self._statements.rows("list_subscribers", topic=topic)
            found |= {str(row.queue_address) for row in rows}
        return sorted(found)

    def _check(self, **names: str) -> None:
        for what, name in names.items():
            if not name.strip() or len(name) > _LONGEST:
                raise ConfigError(
                    f"The {what.replace('_', ' ')} {name!r} cannot be in a subscription",
                    advice=f"give 1 to {_LONGEST} characters",
                )
        if not self._dialect.columns(self._table):
            raise ConfigError(
                f"There is no table of subscriptions {self._table}",
                advice="correct its name, or create it with the command `subscriptions create`",
            )
