"""The peers: NServiceBus's mover, which moves due messages to the endpoint's input queue, and the
receive that brings them from there to their destinations, one message a transaction; and plain
Python processes, without a plan, a ledger or handling of failures.

As a script, this is one of the plain processes. Such a process waits for "go". Its job has a dsn,
so it comes by stdin, which other users cannot see.
"""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from duesweep.core.address import TableName
from duesweep.drivers.postgresql.wire import new_ids

PROCESSES = 2
_PLAIN_BATCH = 1_000
_FORWARD = ',"NServiceBus.SqlServer.ForwardDestination":'

Rows = list[tuple[str, bytes | None]]

Job = Mapping[str, Any]
PLAIN = "--plain"

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


# Its receive and its send, without parts that the benchmark does not need: expiry, and the
# sequence's number that comes back.
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


class Processes:
    """One process a job, each running `script` with `PLAIN`, and ready. `run` is measured."""

    def __init__(self, script: Path, jobs: Sequence[Job]) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, str(script), PLAIN],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in jobs
        ]
        for process, job in zip(self._processes, jobs, strict=True):
            _send(process, json.dumps(job))
            assert process.stdout is not None
            process.stdout.readline()

    def run(self) -> None:
        """Let the processes work. Raises if one of them failed."""
        for process in self._processes:
            _send(process, "go")
        for process in self._processes:
            if process.wait():
                raise subprocess.CalledProcessError(process.returncode, process.args)


def serve(prepare: Callable[[Job], Callable[[], None]]) -> int:
    """Be one of the processes: prepare the job, say so, and do it at "go"."""
    work = prepare(json.loads(sys.stdin.readline()))
    print("ready", flush=True)
    if not sys.stdin.readline():
        return 1  # the comparison was interrupted
    work()
    return 0


def _send(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def plain_processes(
    dsn: str, delayed: TableName, queues: Mapping[str, TableName], rows: int
) -> Processes:
    """The processes, started and connected."""
    tables = {address: str(queue) for address, queue in queues.items()}
    share = -(-rows // PROCESSES)
    jobs = [
        {"dsn": dsn, "delayed": str(delayed), "queues": tables}
        | {"offset": number * share, "limit": share}
        for number in range(PROCESSES)
    ]
    return Processes(Path(__file__).resolve(), jobs)


def sweep_share(connection: psycopg.Connection[tuple[object, ...]], job: Job) -> None:
    """Claim by key, cut the headers, append to each destination, in one transaction a batch."""
    keys = connection.execute(
        f"SELECT id::text FROM {job['delayed']} WHERE due < now() AT TIME ZONE 'UTC'"
        f" ORDER BY due, id OFFSET {job['offset']} LIMIT {job['limit']}".encode()
    ).fetchall()
    claim = (
        f"DELETE FROM {job['delayed']} WHERE id = ANY(%s::uuid[])"
        " AND due < now() AT TIME ZONE 'UTC' RETURNING headers, body"
    ).encode()
    queues: dict[str, str] = job["queues"]
    with connection.cursor(binary=True) as cursor:
        for start in range(0, len(keys), _PLAIN_BATCH):
            batch = "{" + ",".join(str(key) for (key,) in keys[start : start + _PLAIN_BATCH]) + "}"
            with connection.transaction():
                claimed = cursor.execute(claim, [batch]).fetchall()
                for address, rows in _by_address(claimed).items():
                    _append(cursor, queues[address], rows)


def _append(cursor: psycopg.Cursor[tuple[object, ...]], queue: str, rows: Rows) -> None:
    text = f"COPY {queue} (id, headers, body) FROM STDIN (FORMAT BINARY)"
    with cursor.copy(text.encode()) as copy:
        copy.set_types(["uuid", "text", "bytea"])
        for new_id, row in zip(new_ids(), rows, strict=False):
            copy.write_row((new_id, *row))


def _by_address(claimed: list[tuple[object, ...]]) -> dict[str, Rows]:
    groups: dict[str, Rows] = defaultdict(list)
    for headers, body in claimed:
        text = str(headers)
        # Always the last header.
        end = text.rindex(_FORWARD)
        address = json.loads(text[end + len(_FORWARD) : -1])
        groups[address].append((text[:end] + "}", body))  # type: ignore[arg-type]
    return groups


def prepare(job: Job) -> Callable[[], None]:
    """Connect."""
    connection = psycopg.connect(job["dsn"], autocommit=True)
    return lambda: sweep_share(connection, job)


if __name__ == "__main__":
    sys.exit(serve(prepare))
