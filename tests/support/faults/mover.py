"""NServiceBus's own mover of due delayed messages: in a thread, or in a process of its own, to be
killed. Usage: mover.py postgresql|sqlserver|stand-in <dsn> <delayed table> <queue>
"""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg

from duesweep.core.address import TableName

# As the transports word it (MoveDueDelayedMessageText), batches of 100. Babelfish takes no DELETE
# through a WITH.
_MOVES = {
    "postgresql": (
        "WITH message AS (DELETE FROM {delayed} WHERE id IN ("
        "SELECT id FROM {delayed} WHERE {delayed}.due < now() AT TIME ZONE 'UTC' LIMIT 100) "
        "RETURNING id, headers, body) "
        "INSERT INTO {queue} (id, expires, headers, body) "
        "SELECT id, NULL, headers, body FROM message"
    ),
    "sqlserver": (
        "WITH message AS (SELECT TOP (100) * FROM {delayed} WITH (UPDLOCK, READPAST, ROWLOCK) "
        "WHERE Due < GETUTCDATE()) "
        "DELETE FROM message "
        "OUTPUT NEWID(), NULL, NULL, 1, NULL, deleted.Headers, deleted.Body INTO {queue}"
    ),
    "stand-in": (
        "DELETE TOP (100) FROM {delayed} WITH (UPDLOCK, READPAST, ROWLOCK) "
        "OUTPUT NEWID(), NULL, NULL, 1, NULL, deleted.Headers, deleted.Body INTO {queue} "
        "WHERE Due < GETUTCDATE()"
    ),
}
_PAUSE_SECONDS = 0.02
# In a process: slow enough for another sweep to find some messages.
_LONG_PAUSE_SECONDS = 0.15


class Mover:
    """Moves due messages from `delayed` to `queue` until it is stopped."""

    def __init__(
        self,
        dsn: str,
        delayed: TableName | str,
        queue: TableName | str,
        pause_seconds: float = _PAUSE_SECONDS,
        *,
        kind: str = "postgresql",
    ) -> None:
        self._dsn = dsn
        self._kind = kind
        self._statement = _MOVES[kind].format(delayed=delayed, queue=queue)
        self._pause_seconds = pause_seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.moved = 0

    def __enter__(self) -> "Mover":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(timeout=180)

    def _run(self) -> None:
        with _connection(self._kind, self._dsn) as connection:
            while not self._done.wait(self._pause_seconds):
                self.moved += connection.execute(self._statement).rowcount
                connection.commit()


@contextmanager
def _connection(kind: str, dsn: str) -> Iterator[Any]:
    if kind == "postgresql":
        with psycopg.connect(dsn) as connection:
            yield connection
        return
    from support.sqlserver_database import connect  # noqa: PLC0415 - loads ODBC

    with closing(connect(dsn)) as connection:
        connection.autocommit = False
        yield connection


if __name__ == "__main__":
    with Mover(*sys.argv[2:5], pause_seconds=_LONG_PAUSE_SECONDS, kind=sys.argv[1]):
        signal.pause()
