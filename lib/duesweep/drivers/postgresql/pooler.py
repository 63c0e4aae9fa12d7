"""Tells a pooler that keeps a server process for each session from one that assigns processes by
transaction or by statement. Only behind the first kind do a session's settings and locks belong to
that session. Nothing that another client of the pool could notice is changed.

PgBouncer and others say nothing about their mode, and a quiet pool answers each session from the
same process in every mode. So a second session joins, and the two compare.
"""

from collections.abc import Callable
from contextlib import closing
from selectors import EVENT_READ, DefaultSelector
from time import monotonic
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import generators

from duesweep.core.errors import PoolerError

# The process that answers, on whichever server. Without a setting that stays.
_WHO = (
    b"SET LOCAL search_path = pg_catalog, pg_temp;"
    b" SELECT pg_backend_pid() || ' ' || pg_postmaster_start_time()"
)
_READ_ONLY = "25006"
_ROUNDS = 8
# How long the second session may wait for its turn before the first one is asked, and a
# notification for its delivery: on a busy machine too.
_TURN_SECONDS = 2.0
DELIVERY_SECONDS = 5.0
# A pool's mode can be changed while a watcher runs.
_KNOWN_SECONDS = 60.0
_known: dict[object, float] = {}

Connection = psycopg.Connection[Any]


def refuse_shared(raw: Connection, pool: object, join: Callable[[], Connection]) -> None:
    """Raise `PoolerError` unless the session `raw` keeps its server process. `pool` is what
    identifies the pool, which is asked once in a while. `join` opens a second session with it.
    """
    if monotonic() < _known.get(pool, 0):
        return
    with closing(join()) as other:
        if not _owns_process(raw, other):
            info = raw.info
            raise PoolerError(
                f"The pooler at {info.host}:{info.port} assigns server processes by transaction or "
                "statement: a session's settings and locks would get to other programs",
                advice="use a pool in session mode (PgBouncer: pool_mode = session), or connect "
                "to the server itself",
            )
    _known[pool] = monotonic() + _KNOWN_SECONDS


def _owns_process(first: Connection, second: Connection) -> bool:
    """Whether each session has a process of its own, outside of transactions too."""
    firsts, seconds = {_who(first)}, set[bytes]()
    _ask(second)
    if not _has_answered(second, _TURN_SECONDS):
        # The pool has no free process. It serves in turn: if the first session need not wait, it
        # has a process of its own.
        firsts.add(_who(first))
        if not _has_answered(second, 0):
            return len(firsts) == 1
    seconds.add(_answer(second))
    # A pool hands out the process that was used last, or the process that has rested longest. Both
    # show at once, unless others take some in between.
    for _ in range(_ROUNDS):
        firsts |= {_who(first), _who(first)}
        seconds.add(_who(second))
        if len(firsts) > 1 or len(seconds) > 1 or firsts & seconds:
            return False
    return _is_notified(first, second)


def _is_notified(first: Connection, second: Connection) -> bool:
    """Whether a notification reaches the first session, also from another process of the pooler.
    The pooler drops a notification from a process that belongs to no session.
    """
    channel = f"duesweep_{uuid4().hex}".encode()
    try:
        first.execute(b"LISTEN " + channel)
    except psycopg.Error as error:
        if error.sqlstate == _READ_ONLY:
            return True
        raise
    second.execute(b"NOTIFY " + channel)
    found = [*first.notifies(timeout=DELIVERY_SECONDS, stop_after=1)]
    first.execute(b"UNLISTEN " + channel)
    # Some poolers pass it on with the next answer only.
    return bool(found or [*first.notifies(timeout=0)])


def _who(raw: Connection) -> bytes:
    _ask(raw)
    return _answer(raw)


def _ask(raw: Connection) -> None:
    raw.pgconn.send_query(_WHO)


def _answer(raw: Connection) -> bytes:
    *_, result = raw.wait(generators.execute(raw.pgconn))
    value: bytes | None = result.get_value(0, 0)
    if value is None:
        raise psycopg.OperationalError(result.get_error_message())
    return value


def _has_answered(raw: Connection, seconds: float) -> bool:
    with DefaultSelector() as selector:
        selector.register(raw.pgconn.socket, EVENT_READ)
        return bool(selector.select(seconds))
