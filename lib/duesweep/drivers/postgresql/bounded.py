"""A session whose waits for the server all have a limit.

The server's own time-outs do not help if its answer never arrives. Keep-alives do not help if the
peer's kernel still acknowledges.
"""

from collections.abc import Generator
from time import monotonic
from typing import Any, TypeVar

import psycopg
from psycopg import generators
from psycopg.pq import PipelineStatus, TransactionStatus

_T = TypeVar("_T")
_AT_REST = {TransactionStatus.IDLE, TransactionStatus.INTRANS}


class SilenceError(psycopg.OperationalError):
    """The server has not answered in time."""


class BoundedConnection(psycopg.Connection[Any]):
    """Raises and closes when the server has not sent or taken a byte for `answer_seconds`. After
    an idle time longer than `ping_seconds` it first sends an empty query, and waits at most
    `ping_seconds` for the answer.
    """

    answer_seconds: float
    ping_seconds: float
    _used = 0.0

    def wait(self, gen: Generator[Any, Any, _T], *args: Any, **options: Any) -> _T:
        """Run one exchange with the server. psycopg calls this for all that it does."""
        idle_seconds = monotonic() - self._used
        if self._used and idle_seconds > self.ping_seconds:
            self._ping()
        value = super().wait(self._limit_wait(gen, self.answer_seconds), *args, **options)
        self._used = monotonic()
        return value

    def _ping(self) -> None:
        # Not during a COPY or a pipeline, which consist of several exchanges.
        at_rest = self.pgconn.transaction_status in _AT_REST
        if at_rest and self.pgconn.pipeline_status == PipelineStatus.OFF:
            self.pgconn.send_query(b"")
            super().wait(self._limit_wait(generators.execute(self.pgconn), self.ping_seconds))

    def _limit_wait(
        self, exchange: Generator[Any, Any, _T], seconds: float
    ) -> Generator[Any, Any, _T]:
        try:
            wanted = next(exchange)
            deadline = monotonic() + seconds
            while True:
                # `ready` is 0 each time that psycopg's own interval has passed.
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
        # Otherwise the clean-up, a ROLLBACK for example, would wait as long again.
        self.close()
        raise SilenceError(
            f"The server at {where} has not answered for {seconds:.3g} s; check whether "
            "it, or a pooler or proxy before it, is stuck (timeouts.silence_seconds says how long "
            "to wait)"
        )
