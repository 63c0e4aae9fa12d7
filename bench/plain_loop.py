"""Contender: two plain Python processes, without a plan, a ledger or handling of failures.

As a script, this is one of the processes.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

import psycopg
from processes import Job, Processes, serve

from duesweep.core.address import TableName
from duesweep.drivers.postgresql.wire import copy_chunks

PROCESSES = 2
_BATCH = 1_000
_FORWARD = ',"NServiceBus.SqlServer.ForwardDestination":'

Rows = list[tuple[str, bytes | None]]


def plain_loop(
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
        for start in range(0, len(keys), _BATCH):
            batch = "{" + ",".join(str(key) for (key,) in keys[start : start + _BATCH]) + "}"
            with connection.transaction():
                claimed = cursor.execute(claim, [batch]).fetchall()
                for address, rows in _by_address(claimed).items():
                    _append(cursor, queues[address], rows)


def _append(cursor: psycopg.Cursor[tuple[object, ...]], queue: str, rows: Rows) -> None:
    text = f"COPY {queue} (id, headers, body) FROM STDIN (FORMAT BINARY)"
    with cursor.copy(text.encode()) as copy:
        for chunk in copy_chunks(rows):
            copy.write(chunk)


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
