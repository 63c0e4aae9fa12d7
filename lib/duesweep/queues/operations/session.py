"""A session on a transport: its queues, its subscriptions, and transactions over them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

from duesweep.queues.base import Destination
from duesweep.queues.operations.base import QueueStatements
from duesweep.queues.operations.queue_table import QueueTable
from duesweep.queues.operations.subscriptions import SUBSCRIPTION_TABLE, Subscriptions

if TYPE_CHECKING:
    from duesweep.queues.operations.base import QueueDialect, Transport


class TransportSession:
    """One session; not thread-safe."""

    def __init__(self, dialect: "QueueDialect") -> None:
        self._dialect = dialect
        self._known: dict[Destination, QueueStatements] = {}

    def queue(self, address: str | None) -> QueueTable:
        """The queue at `address`, even if it does not exist; None is the endpoint's own.

        Raises `UnreadableAddressError` for an address that can name no table.
        """
        return QueueTable(self._dialect, self._dialect.addresses.parse(address), self._known)

    def subscriptions(self, table: str = SUBSCRIPTION_TABLE) -> Subscriptions:
        """The table of subscriptions at an address."""
        return Subscriptions(self._dialect, self._dialect.addresses.parse(table))

    def transaction(self) -> AbstractContextManager[None]:
        """A transaction; nested, a savepoint."""
        return self._dialect.transaction()


@contextmanager
def open_session(transport: "Transport") -> Iterator[TransportSession]:
    """A session on `transport`, closed at the end of the block."""
    with transport.connect() as dialect:
        yield TransportSession(dialect)


class ReusableSession:
    """A session that stays open between uses. After `close` the next use opens a new one."""

    def __init__(self, transport: "Transport") -> None:
        self._transport = transport
        self._stack = ExitStack()
        self._session: TransportSession | None = None

    def get(self) -> TransportSession:
        """The open session; opens one if there is none."""
        if self._session is None:
            self._session = self._stack.enter_context(open_session(self._transport))
        return self._session

    def close(self) -> None:
        """Close the session, if it is open."""
        self._session = None
        self._stack.close()
