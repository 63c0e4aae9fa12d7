"""A transport in memory, whose queues lock rows as the databases do, and its receivers."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

from duesweep.core.address import PostgreSqlAddresses, TableName
from duesweep.core.message import ReceivedMessage
from duesweep.drivers.statements import FoundTable
from duesweep.queues.base import Destination
from duesweep.stores.postgresql import POSTGRESQL
from duesweep_transport.receiver import Handle, Receiver, ReceiverOptions
from duesweep_transport.tables import TransportSession

ENDPOINT = "Sales.Orders"
# No connection to a database.
UNUSED: Any = None


@dataclass(slots=True)
class Row:
    """A row of a queue; `held_by` is the session that has received it."""

    headers: str
    body: bytes | None = None
    id: UUID = field(default_factory=uuid4)
    expires: datetime | None = None
    held_by: object = None


class MemoryTransport:
    """Queues by name. `before` is called with the name of each statement, and may raise."""

    def __init__(self, *names: str) -> None:
        self.addresses = PostgreSqlAddresses(ENDPOINT, "public")
        self.lock = threading.RLock()
        self.queues: dict[str, list[Row]] = {name: [] for name in names}
        self.before: Callable[[str], None] = lambda _: None
        self.peeked: list[int] = []
        self.sessions = 0

    def put(self, queue: str, *headers: str) -> None:
        self.queues[queue] += [Row(text) for text in headers]

    def headers(self, queue: str) -> list[str]:
        return [row.headers for row in self.queues[queue]]

    @contextmanager
    def connect(self) -> Iterator["MemorySession"]:
        with self.lock:
            self.sessions += 1
        try:
            yield MemorySession(self)
        finally:
            with self.lock:
                self.sessions -= 1


class MemorySession(TransportSession):
    """One session; its messages arrive when its transaction commits."""

    def __init__(self, transport: MemoryTransport) -> None:
        super().__init__(UNUSED, POSTGRESQL, transport.addresses, None)
        self._transport = transport
        self._sent: list[tuple[str, Row]] = []

    @contextmanager
    def transaction(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._end(is_committed=False)
            raise
        self._end(is_committed=True)

    def find(self, table: Destination) -> FoundTable | None:
        columns = dict.fromkeys(("id", "expires", "headers", "body"), "")
        is_there = _name(table) in self._transport.queues
        return FoundTable(is_table=True, columns=columns) if is_there else None

    def named(self, role: str, table: Destination) -> Any:
        return MemoryStatements(self, {role: table})

    def execute(self, name: str, tables: Mapping[str, Destination], **values: Any) -> int:
        self._transport.before(name)
        if name == "purge":
            return self._purge(_name(tables["queue"]), values["batch"])
        row = Row(values["headers"], values["body"], values["id"])
        self._sent.append((_name(tables["queue"]), row))
        return 1

    def _purge(self, queue: str, most: int) -> int:
        with self._transport.lock:
            free = [row for row in self._transport.queues[queue] if not row.held_by][:most]
            for row in free:
                self._transport.queues[queue].remove(row)
            return len(free)

    def rows(self, name: str, tables: Mapping[str, Destination], **values: Any) -> list[Any]:
        self._transport.before(name)
        with self._transport.lock:
            free = [r for r in self._transport.queues[_name(tables["queue"])] if not r.held_by]
            if name == "peek":
                self._transport.peeked.append(len(free))
                return [SimpleNamespace(messages=min(len(free), values["batch"]))]
            for row in free[:1]:
                row.held_by = self
            return free[:1]

    def _end(self, *, is_committed: bool) -> None:
        with self._transport.lock:
            queues = self._transport.queues
            for name, rows in queues.items():
                if is_committed:
                    queues[name] = [row for row in rows if row.held_by is not self]
                for row in rows:
                    row.held_by = None if row.held_by is self else row.held_by
            if is_committed:
                for name, row in self._sent:
                    queues[name].append(row)
            self._sent.clear()


@dataclass(frozen=True, slots=True)
class MemoryStatements:
    """The statements of a session on some tables."""

    dialect: MemorySession
    tables: Mapping[str, Destination]

    def row(self, name: str, /, **values: Any) -> Any:
        (row,) = self.rows(name, **values)
        return row

    def rows(self, name: str, /, **values: Any) -> list[Any]:
        return self.dialect.rows(name, self.tables, **values)

    def execute(self, name: str, /, **values: Any) -> int:
        return self.dialect.execute(name, self.tables, **values)

    def query(self, name: str, /, **literals: str) -> str:
        raise AssertionError(f"operations read nothing over JDBC: {name}, {literals}")

    def transaction(self) -> AbstractContextManager[None]:
        return self.dialect.transaction()


def _name(table: Destination) -> str:
    assert isinstance(table, TableName)
    return table.table


class CountedStop(threading.Event):
    """Is set after this many waits, none of which takes any time; it keeps how long each would."""

    def __init__(self, waits: int) -> None:
        super().__init__()
        self._left = waits
        self.waited: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout)
        self._left -= 1
        if self._left <= 0:
            self.set()
        return self.is_set()


ONE = ReceiverOptions(concurrency=1)


class Handler:
    """A handler that notes its messages; `then` may raise."""

    def __init__(self, then: Callable[[ReceivedMessage], None] = lambda _: None) -> None:
        self.handled: list[str] = []
        self._then = then

    def __call__(self, message: ReceivedMessage, session: TransportSession) -> None:
        assert isinstance(session, TransportSession)
        self.handled.append(message.headers_text)
        self._then(message)


def receive(
    transport: MemoryTransport,
    handle: Handle,
    options: ReceiverOptions = ONE,
    stop: threading.Event | None = None,
) -> threading.Event:
    stop = stop or CountedStop(1)
    receiver_of(transport, options).run(handle, stop)
    assert transport.sessions == 0
    return stop


def receiver_of(transport: MemoryTransport, options: ReceiverOptions) -> Receiver:
    return Receiver(transport, "Billing", "error", options)  # type: ignore[arg-type]


def texts(count: int) -> list[str]:
    return [f'{{"n":"{number}"}}' for number in range(count)]
