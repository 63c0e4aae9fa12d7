"""Contenders of NServiceBus: its mover, which moves due messages to the endpoint's input queue, and
the receive that brings them from there to their destinations, one message a transaction.
"""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from itertools import count

import psycopg

from duesweep.core.address import TableName

BATCH = 100
# Verbatim, except the batch size, which NServiceBus binds: `MoveDueDelayedMessageText` of
# https://github.com/Particular/NServiceBus.SqlServer (PostgreSqlConstants.cs).
_MOVE_DUE = """
WITH message as (DELETE FROM {0} WHERE id in (SELECT id from {0} WHERE {0}.Due < now() AT TIME ZONE
'UTC' LIMIT {2}) RETURNING id, headers, body) INSERT into {1} (id, expires, headers, body) SELECT
id, NULL, headers, body FROM message;

SELECT now() AT TIME ZONE 'UTC' as UtcNow, Due as NextDue
FROM {0}
ORDER BY Due LIMIT 1 FOR UPDATE SKIP LOCKED
"""


# Its receive and its send, without what the benchmark has no use for: expiry, and the sequence's
# number that comes back.
_RECEIVE = """
WITH message AS (SELECT seq FROM {0} FOR UPDATE SKIP LOCKED LIMIT 1)
DELETE FROM {0} r USING message WHERE r.seq = message.seq RETURNING r.headers, r.body
"""
_SEND = "INSERT INTO {} (id, expires, headers, body) VALUES (gen_random_uuid(), NULL, %s, %s)"
RECEIVERS = 8


def move(dsn: str, delayed: TableName, own_queue: TableName) -> None:
    """Move batch after batch, one transaction each, until the next message is not due."""
    # One round trip for the statements and one for the COMMIT, as Npgsql makes them.
    batch = "BEGIN;" + _MOVE_DUE.format(delayed, own_queue, BATCH)
    with psycopg.connect(dsn, autocommit=True) as connection, connection.cursor() as cursor:
        is_next_due = True
        while is_next_due:
            cursor.execute(batch.encode())
            while cursor.nextset():
                pass
            row = cursor.fetchone()
            is_next_due = row is not None and row[1].astimezone(UTC).replace(tzinfo=None) <= row[0]
            connection.execute("COMMIT")


def move_at_once(movers: int, dsn: str, delayed: TableName, own_queue: TableName) -> int:
    """Several endpoints' movers at once. They deadlock, and begin again, as NServiceBus does.
    Returns how often.
    """

    def move_all(_: int) -> int:
        for deadlocks in count():
            try:
                move(dsn, delayed, own_queue)
            except psycopg.errors.DeadlockDetected:
                continue
            return deadlocks
        raise AssertionError

    with ThreadPoolExecutor(movers) as pool:
        return sum(pool.map(move_all, range(movers)))


def receive_all(dsn: str, own_queue: TableName, queues: Mapping[str, TableName]) -> None:
    """Bring all messages of the input queue to their destinations, eight receivers at once."""

    def receive(_: int) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            while _receive_one(connection, own_queue, queues):
                pass

    with ThreadPoolExecutor(RECEIVERS) as pool:
        list(pool.map(receive, range(RECEIVERS)))


def _receive_one(
    connection: psycopg.Connection[tuple[str, bytes]],
    own_queue: TableName,
    queues: Mapping[str, TableName],
) -> bool:
    with connection.transaction():
        row = connection.execute(_RECEIVE.format(own_queue).encode()).fetchone()
        if row is None:
            return False
        headers = json.loads(row[0])
        destination = headers.pop("NServiceBus.SqlServer.ForwardDestination")
        send = _SEND.format(queues[destination]).encode()
        connection.execute(send, [json.dumps(headers), row[1]])
    return True
