"""Queue tables of every dialect: where they are, and deliveries in groups, under savepoints."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from duesweep.core.address import Addresses
from duesweep.core.errors import (
    ConfigError,
    DestinationError,
    MessageError,
    QueueNotFoundError,
    RefusedMessageError,
)
from duesweep.core.message import Message
from duesweep.core.policy import DEFAULT_TIMEOUTS, Timeouts
from duesweep.drivers.servers import SERVERS
from duesweep.drivers.statements import Columns, FoundTable, Session, UndoneError
from duesweep.queues.base import Destination, Queue, QueueSession
from duesweep.stores.base import DriverSession
from duesweep.stores.dialect import Dialect, WantedTable
from duesweep.stores.sql_task import SqlTask
from duesweep.stores.store import SqlDriver
from duesweep.stores.tables import table_findings
from duesweep.stores.task import TaskSession

# The default, in the default schema. All endpoints of a system use the same table.
SUBSCRIPTION_TABLE = "SubscriptionRouting"
# Columns that the queues of all dialects have, in lower case.
SHARED_COLUMNS = frozenset({"id", "headers", "body", "expires"})

OWN, ERROR = "endpoint's own queue", "error queue"
WAITED_FOR, ROUTED = "queue that messages wait for", "queue that a [[route]] names"
_SETUP = "run the command `setup`, or correct the setting that names it"
_ELSEWHERE = "start its endpoint with installers enabled, or correct its name with a [[route]]"
# What to do where the queue of a role is missing.
CREATE = {OWN: _SETUP, ERROR: _SETUP, WAITED_FOR: _ELSEWHERE, ROUTED: _ELSEWHERE}


Connection = TypeVar("Connection", bound=Session)


class QueueTableSession(QueueSession, Generic[Connection]):
    """Delivers in the store's transaction: exactly once. With `own_transaction` it has its own,
    which is committed right before the store's: at least once.
    """

    def __init__(
        self, connection: Connection, addresses: Addresses, *, own_transaction: bool = False
    ) -> None:
        self._connection = connection
        self._addresses = addresses
        self._own_transaction = own_transaction
        self._known: set[Destination] = set()
        # Its own one, if it has begun.
        self._transaction: AbstractContextManager[None] | None = None

    def resolve(self, address: str | None) -> Destination:
        table = self._addresses.parse(address)
        if table not in self._known:
            self.examined(table)
            self._known.add(table)
        return table

    def deliver(
        self, destination: Destination, messages: Sequence[Message]
    ) -> dict[str, MessageError]:
        """Deliver the group. If a row is refused, deliver by halves: only that row fails."""
        if self._own_transaction and self._transaction is None:
            transaction = self._connection.transaction()
            transaction.__enter__()
            self._transaction = transaction
        return self._deliver(destination, messages)

    def commit(self) -> None:
        self._end_transaction(None)

    def rollback(self) -> None:
        self._end_transaction(UndoneError())

    def _end_transaction(self, error: Exception | None) -> None:
        """Commit the transaction of its own, if it has begun; roll it back for an error."""
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            transaction.__exit__(type(error) if error else None, error, None)

    @abstractmethod
    def read_tables(self) -> None:
        """Read which queue tables there are, before anything is claimed: a query during a claim
        would make it longer.
        """

    @abstractmethod
    def check_database(self, setting: str) -> None:
        """Raise `ConfigError` for a database, which `setting` names, that cannot take messages."""

    @abstractmethod
    def examined(self, table: Destination) -> FoundTable:
        """A queue table, and the rights that the sweeper lacks on it. Raises `MessageError` if it
        is not a queue table, `StoreError` if that cannot be read now.
        """

    @abstractmethod
    def _insert(self, destination: Destination, messages: Sequence[Message]) -> None:
        """Insert the messages, all or none."""

    def _find_fault(self, destination: Destination) -> MessageError | None:
        """The error for the messages if the table is not a queue table any more; else None."""
        try:
            self.examined(destination)
        except MessageError as error:
            self._known.discard(destination)
            return error
        return None

    def _deliver(
        self, destination: Destination, messages: Sequence[Message]
    ) -> dict[str, MessageError]:
        try:
            with self._connection.transaction():
                self._insert(destination, messages)
        except RefusedMessageError as error:
            if len(messages) == 1:
                return {messages[0].key: error}
            return self._deliver_halves(destination, messages)
        except DestinationError:
            gone = self._find_fault(destination)
            if gone is None:
                raise
            return dict.fromkeys((message.key for message in messages), gone)
        return {}

    def _deliver_halves(
        self, destination: Destination, messages: Sequence[Message]
    ) -> dict[str, MessageError]:
        half = len(messages) // 2
        # Both halves are under one savepoint: if the table is unavailable for the second half, the
        # first half must be undone, since the whole group counts as not delivered.
        with self._connection.transaction():
            refused = self._deliver(destination, messages[:half])
            return refused | self._deliver(destination, messages[half:])


@dataclass(frozen=True, slots=True)
class QueueTables(Queue):
    """All queue tables of one database or server.

    `dsn` None: the store's, in the store's transaction. `setting` is the section that names the
    database; `holds_own_queue`: the endpoint's own queue has to be there.
    """

    # The server that must have the store, and the columns of its queues with their types.
    dialect: ClassVar[Dialect]
    columns: ClassVar[Columns]
    _CONNECTION: ClassVar[type[Session]]
    _SESSION: ClassVar[type[QueueTableSession[Any]]]

    addresses: Addresses
    dsn: str | None = field(default=None, repr=False)
    setting: str = "queues.default"
    holds_own_queue: bool = True
    timeouts: Timeouts = DEFAULT_TIMEOUTS

    @property
    def shares_transaction(self) -> bool:
        return self.dsn is None

    @contextmanager
    def open(self, store: TaskSession) -> Iterator[QueueTableSession[Any]]:
        with ExitStack() as stack:
            if self.dsn is None:
                session = self._beside(store.connection if isinstance(store, SqlTask) else None)
            else:
                session = stack.enter_context(self._connect(self.dsn))
            session.read_tables()
            yield session

    def check(self, error_queue: str | None, store: DriverSession) -> None:
        if self.dsn is None and error_queue is None:
            # The store's check is of the same database. A right that is missing on a queue is
            # found by its first message.
            return
        with self.asking(store) as session:
            if self.dsn is not None:
                self._check_database(session)
            if error_queue is not None:
                self._check_error_queue(session, error_queue)

    @contextmanager
    def asking(self, store: DriverSession) -> Iterator[Any]:
        """A session for questions: on the driver's own connection if it shares the database."""
        with ExitStack() as stack:
            if self.dsn is None:
                session = self._beside(store.connection if isinstance(store, SqlDriver) else None)
            else:
                try:
                    session = stack.enter_context(self._connect(self.dsn))
                except ConfigError as error:
                    text = f"{self.setting}.dsn: {error.text}"
                    raise ConfigError(text, advice=error.advice) from error
            yield session

    @staticmethod
    def wanted(role: str, table: Any) -> WantedTable:
        """What delivery needs of a queue table."""
        raise NotImplementedError

    def _beside(self, connection: Session | None) -> QueueTableSession[Any]:
        """A session on a store's own connection; None: it has none."""
        if not isinstance(connection, self._CONNECTION):
            raise ConfigError(
                f"{self.setting} has no dsn, but the store is not in "
                f"{SERVERS[self.dialect.statements].title}",
                advice="give it one",
            )
        return self._SESSION(connection, self.addresses)

    @contextmanager
    def _connect(self, dsn: str) -> Iterator[QueueTableSession[Any]]:
        """A session on a connection of its own."""
        with self.dialect.connect(dsn, self.timeouts.task) as connection:
            yield self._SESSION(connection, self.addresses, own_transaction=True)

    def _check_database(self, session: QueueTableSession[Any]) -> None:
        session.check_database(f"{self.setting}.dsn")
        if not self.holds_own_queue:
            return
        try:
            session.resolve(None)
        except MessageError as error:
            raise ConfigError(
                f"{self.setting}.dsn does not lead to the endpoint's queues: {error}",
                advice="correct the dsn, or create the queue with the command `setup`",
            ) from error

    def _check_error_queue(self, session: QueueTableSession[Any], address: str) -> None:
        what = f"retry.error_queue is {address!r}"
        try:
            table = self.addresses.parse(address)
            found = session.examined(table)
        except (MessageError, DestinationError) as error:
            is_missing = isinstance(error, QueueNotFoundError)
            advice = _SETUP if is_missing else "correct the setting"
            raise ConfigError(f"{what}: {error}", advice=advice) from error
        for finding in table_findings(self.wanted(ERROR, table), found):
            if finding.stops:
                raise ConfigError(f"{what}: {finding.problem.text}", advice=finding.advice)
