"""A session whose every wait for the server ends.

Time-outs of the server's do not help where its answer never comes, and keep-alives do not where the
peer's kernel still acknowledges.
"""

from collections.abc import Generator
from time import monotonic
from typing import Any, TypeVar

import psycopg
from psycopg import generators
from psycopg.pq import TransactionStatus

_T = TypeVar("_T")


class BoundedConnection(psycopg.Connection[Any]):
    """Gives up, and closes, when the server has not sent or taken a byte for `answer_seconds`. When
    it was not used for longer than `ping_seconds`, it asks so long for a sign of life first.
    """

    answer_seconds: float
    ping_seconds: float
    _used = 0.0

    def wait(self, gen: Generator[Any, Any, _T], *args: Any, **options: Any) -> _T:
        """Carry on one exchange with the server: all that psycopg does goes through here."""
        idle_seconds = monotonic() - self._used
        if self._used and idle_seconds > self.ping_seconds:
            self._ping()
        value = super().wait(self._bounded(gen, self.answer_seconds), *args, **options)
        self._used = monotonic()
        return value

    def _ping(self) -> None:
        # Not within an exchange: a COPY's goes on where the last one ended.
        if self.pgconn.transaction_status in {TransactionStatus.IDLE, TransactionStatus.INTRANS}:
            self.pgconn.send_query(b"")
            super().wait(self._bounded(generators.execute(self.pgconn), self.ping_seconds))

    def _bounded(
        self, exchange: Generator[Any, Any, _T], seconds: float
    ) -> Generator[Any, Any, _T]:
        try:
            wanted = next(exchange)
            deadline = monotonic() + seconds
            while True:
                # Nothing, each time that psycopg's own interval has passed.
                ready = yield wanted
                now = monotonic()
                if ready:
                    deadline = now + seconds
                elif now >= deadline:
                    self._give_up(seconds)
                wanted = exchange.send(ready)
        except StopIteration as end:
            value: _T = end.value
            return value

    def _give_up(self, seconds: float) -> None:
        info = self.info
        where = f"{info.host}:{info.port}"
        # Else whoever tidies up, as by a ROLLBACK, would wait as long again.
        self.close()
        raise psycopg.OperationalError(
            f"The server at {where} has not answered for {seconds:.3g} s; see whether "
            "it, or a pooler or proxy before it, is stuck (timeouts.silence_seconds says how long "
            "to wait)"
        )
