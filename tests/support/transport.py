"""The steps of the tests of the transports' operations, on both servers."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from duesweep.queues.base import Destination
from duesweep_testing.builders import BODY
from duesweep_transport import configured
from duesweep_transport.tables import QueueTable
from duesweep_transport.values import OutgoingMessage, ReceivedMessage
from support.endpoint import Endpoint

HAS_SERVER = bool(os.environ.get("DUESWEEP_TEST_SQLSERVER"))
BILLING = "Billing"
HOUR = timedelta(hours=1)
# An endpoint of a transport, with its tables.
Subject = Endpoint[Any]


class ReleasedError(Exception):
    """Ends a block badly."""


def message(number: int = 1, **more: timedelta) -> OutgoingMessage:
    return OutgoingMessage({"n": str(number), "Slash": "a/b", "Null": None}, BODY, **more)


def fill(queue: QueueTable, count: int) -> QueueTable:
    """Create a queue with `count` messages in it, numbered from 1."""
    queue.create()
    for number in range(1, count + 1):
        queue.send(message(number))
    return queue


def number_of(received: ReceivedMessage | None) -> int | None:
    if received is None:
        return None
    assert not isinstance(received.headers, Exception)
    return int(received.headers["n"] or 0)


def receive_all(queue: QueueTable) -> Iterator[int | None]:
    """The numbers of all messages, in the order in which they are received."""
    while True:
        with queue.receive() as received:
            if received is None:
                return
            yield number_of(received)


@contextmanager
def held(queue: QueueTable) -> Iterator[int | None]:
    """The number of a message that is received in the block, and then released."""
    try:
        with queue.receive() as received:
            yield number_of(received)
            raise ReleasedError
    except ReleasedError:
        return


def transport_of(endpoint: Subject) -> Any:
    return configured.transport_of(endpoint.config())


def address(endpoint: Subject, name: str) -> str:
    """The address of a table of any name, which need not be one that an address can have bare."""
    return endpoint.table(name) if endpoint.kind == "postgresql" else f"{name}@[{endpoint.schema}]"


def rows(endpoint: Subject, table: Destination) -> list[tuple[str, bytes | None]]:
    return [(row.headers, row.body) for row in endpoint.server.queue_rows(table)]


def change(endpoint: Subject, table: Destination, assignment: str, where: str = "1 = 1") -> None:
    """Change messages behind the library's back, as in `headers = ''`."""
    endpoint.execute(f"UPDATE {endpoint.server.quoted(table)} SET {assignment} WHERE {where}")


def expire(endpoint: Subject, table: Destination, where: str = "1 = 1") -> None:
    """Have messages expired a second ago."""
    change(endpoint, table, f"expires = {endpoint.server.past}", where)
