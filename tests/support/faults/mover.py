"""NServiceBus's own mover of due delayed messages: in a thread, or in a process of its own, to be
killed. Usage: mover.py <dsn> <delayed table> <queue>
"""

import signal
import sys
import threading

import psycopg

from duesweep.core.address import TableName

# As the PostgreSQL transport words it (MoveDueDelayedMessageText), batches of 100.
_MOVE = (
    "WITH message AS (DELETE FROM {delayed} WHERE id IN ("
    "SELECT id FROM {delayed} WHERE {delayed}.due < now() AT TIME ZONE 'UTC' LIMIT 100) "
    "RETURNING id, headers, body) "
    "INSERT INTO {queue} (id, expires, headers, body) SELECT id, NULL, headers, body FROM message"
)
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
    ) -> None:
        self._dsn = dsn
        self._statement = _MOVE.format(delayed=delayed, queue=queue)
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
        with psycopg.connect(self._dsn) as connection:
            while not self._done.wait(self._pause_seconds):
                self.moved += connection.execute(self._statement.encode()).rowcount
                connection.commit()


if __name__ == "__main__":
    with Mover(*sys.argv[1:4], pause_seconds=_LONG_PAUSE_SECONDS):
        signal.pause()
