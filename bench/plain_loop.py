"""Contender: two plain Python processes, without a plan, a ledger or handling of failures.

As a script, this is one of the processes: it connects, prints `ready`, waits for a line, and then
sweeps its half.
"""

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import psycopg

from duesweep.core.address import TableName
from duesweep.drivers.postgresql.copy import copy_chunks

PROCESSES = 2
_BATCH = 1_000
_FORWARD = ',"NServiceBus.SqlServer.ForwardDestination":'

Rows = list[tuple[str, bytes | None]]


class PlainLoop:
    """The processes, started and connected. `run` is measured."""

    def __init__(
        self, dsn: str, delayed: TableName, queues: dict[str, TableName], rows: int
    ) -> None:
        tables = {address: str(queue) for address, queue in queues.items()}
        share = -(-rows // PROCESSES)
        self._processes = [
            _process(
                {"dsn": dsn, "delayed": str(delayed), "queues": tables}
                | {"offset": number * share, "limit": share}
            )
            for number in range(PROCESSES)
        ]
        for process in self._processes:
            assert process.stdout is not None
            process.stdout.readline()

    def run(self) -> None:
        """Let the processes sweep. Raises if one of them failed."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in self._processes:
            if process.wait():
                raise subprocess.CalledProcessError(process.returncode, process.args)


def _process(job: dict[str, object]) -> subprocess.Popen[str]:
    command = [sys.executable, str(Path(__file__).resolve()), json.dumps(job)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def sweep_share(connection: psycopg.Connection[tuple[object, ...]], job: dict[str, object]) -> None:
    """Claim by key, cut the headers, append to each destination, in one transaction a batch."""
    keys = connection.execute(
        f"SELECT id::text FROM {job['delayed']} WHERE due < now() AT TIME ZONE 'UTC'"
        f" ORDER BY due, id OFFSET {job['offset']} LIMIT {job['limit']}".encode()
    ).fetchall()
    claim = (
        f"DELETE FROM {job['delayed']} WHERE id = ANY(%s::uuid[])"
        " AND due < now() AT TIME ZONE 'UTC' RETURNING headers, body"
    ).encode()
    queues: dict[str, str] = job["queues"]  # type: ignore[assignment]
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


def main() -> int:
    """Run one of the processes."""
    job = json.loads(sys.argv[1])
    with psycopg.connect(job["dsn"], autocommit=True) as connection:
        print("ready", flush=True)
        if not sys.stdin.readline():
            return 1  # the comparison was interrupted
        sweep_share(connection, job)
    return 0


if __name__ == "__main__":
    sys.exit(main())
