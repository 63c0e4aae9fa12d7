"""Contender: NServiceBus's own mover, which moves due messages to the endpoint's input queue."""

from datetime import UTC

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
