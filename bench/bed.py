"""The database for all contenders: the same rows before each run, and a count after it."""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import psycopg
from measure import Faults

from duesweep import Duesweep
from duesweep.config import Config
from duesweep.config.adapters.context import store_of
from duesweep.core.address import PostgreSqlAddresses, TableName
from duesweep.drivers.statements import statement  # noqa: TID251 - creates its tables
from duesweep.operations.demo.folder import write_config
from duesweep.operations.demo.server import EmbeddedServer
from duesweep.operations.demo.traffic import ENDPOINT, Traffic, generate, load, stored_now
from duesweep.stores.base import OperatorDriver

ADDRESSES = ("Billing", '"public"."Shipping"', "Ship.ping", "Invoicing")
_SCHEMA = "public"
DATABASE = "duesweep_bench"
# With about 850 bytes of headers and its overhead, a row takes 1.7 kB.
BODY_BYTES = 800
_NOT_DUE_SHARE = 50
_SETTINGS = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers")


# How Dues lie in the table: in the order of storing, one for all, or anywhere. As SQL, if the rows
# that are made have to be changed for it.
DUES = {
    "in order": None,
    "one": "of_due.min",
    "random": "of_due.min + random() * (of_due.max - of_due.min)",
}


@dataclass(frozen=True, slots=True)
class Load:
    """The messages in the store: `rows` messages that are due, to `destinations` in turn, and 2 %
    more that are not. `dues` says how the Dues of messages that are due lie in the table. `waiting`
    messages more become due in a week; `paused` more are due, and their destination is paused.
    `made_once`: without those 2 %, made by the server, and not kept for another round, which would
    take twice the disk.
    """

    rows: int
    destinations: Sequence[str] = ADDRESSES
    body_bytes: int = BODY_BYTES
    dues: str = "in order"
    waiting: int = 0
    paused: int = 0
    made_once: bool = False

    @property
    def left(self) -> int:
        """How many messages a sweep leaves in the store, but for those 2 %."""
        return self.waiting + self.paused


@contextmanager
def open_server(folder: Path, dsn: str | None, **settings: str) -> Iterator[str]:
    """The dsn of a server with these settings that ends with the block; or `dsn`, if given."""
    if dsn is None:
        # All commit as duesweep does; without --durable no disk is waited for.
        settings = {"fsync": "off", "synchronous_commit": "on", **settings}
        with EmbeddedServer(
            folder, trusts_all=True, timezone="UTC", max_wal_size="4GB", **settings
        ) as server:
            yield server.dsn
        return
    with psycopg.connect(dsn) as connection:
        if connection.info.dbname != DATABASE:
            sys.exit(f"bench/run empties tables, so the database of --dsn has to be {DATABASE}")
    yield dsn


def config_of(file: Path, dsn: str, root: str, **sections: dict[str, Any]) -> Config:
    """Write the configuration of the endpoint into `file`, and load it."""
    settings = {
        "store": {"kind": "postgresql", "dsn": dsn, "endpoint": ENDPOINT},
        "ledger": {"root": root, **sections.pop("ledger", {})},
        **sections,
    }
    return write_config(file, settings, "Written by bench/run.")


@contextmanager
def open_bed(folder: Path, load: Load, **settings: str) -> Iterator["Bed"]:
    """A server of its own with these settings, prepared. The ledger is `folder`/ledger."""
    with open_server(folder, None, **settings) as dsn:
        file = folder / "duesweep.toml"
        bed = Bed(file, config_of(file, dsn, str(folder / "ledger")), load)
        bed.prepare()
        yield bed


class Bed:
    """The tables, on the server that `config`, written in `file`, names."""

    def __init__(self, file: Path, config: Config, load: Load) -> None:
        self.file = file
        self.config = config
        self.dsn = config.store.dsn.get_secret_value()
        self.rows = load.rows
        self._load = load
        self.delayed = store_of(config).delayed
        self._addresses = PostgreSqlAddresses(ENDPOINT, _SCHEMA)
        self.own_queue = self._addresses.own_queue
        self.queues = {address: self._addresses.parse(address) for address in load.destinations}

    @property
    def server_pid(self) -> int | None:
        """The id of the server's first process; None: it is not on this machine."""
        with psycopg.connect(self.dsn) as connection, suppress(psycopg.Error, OSError):
            (folder,) = connection.execute("SHOW data_directory").fetchone() or ("",)
            return int((Path(folder) / "postmaster.pid").read_text().splitlines()[0])
        return None

    def prepare(self) -> None:
        """Create the tables and generate the rows that `reset` copies."""
        Duesweep(self.config).setup()
        rows = len(self._load.destinations) if self._load.made_once else self.rows
        traffic = Traffic(
            rows,
            not_due=rows // _NOT_DUE_SHARE,
            body_bytes=self._load.body_bytes,
            destinations=tuple(self._load.destinations),
        )
        with psycopg.connect(self.dsn) as connection:
            _run(connection, f"TRUNCATE {self.delayed}")
            _run(connection, "DROP TABLE IF EXISTS bench_pristine")
            for queue in self.queues.values():
                _run(connection, f'CREATE SCHEMA IF NOT EXISTS "{queue.schema}"')
                _run(connection, statement("postgresql", "create_queue").format(queue=queue))
            load(connection, self.delayed, generate(traffic, stored_now(self.dsn)))
            _run(connection, _KEEP_PRISTINE.format(delayed=self.delayed))
            if due := DUES[self._load.dues]:
                _run(connection, _OTHER_DUE.format(due=due))
            _run(connection, f"TRUNCATE {self.delayed}")
            _run(connection, _WAITING.format(delayed=self.delayed, waiting=self._load.waiting))
            _run(connection, _PAUSED.format(delayed=self.delayed, paused=self._load.paused))
        self._pause()

    def _pause(self) -> None:
        with store_of(self.config).open_driver() as session:
            steering = cast("OperatorDriver", session)
            steering.people.resume(_RESTING)
            if self._load.paused:
                steering.people.pause(_RESTING, None, "bench", "a load of messages that are paused")

    def reset(self, rows: int | None = None, *, keeps_rows: bool = False) -> None:
        """Empty the queues, and fill the delayed table with all rows, or the first `rows`.
        `keeps_rows`: its deleted rows stay in it, and it has no others.
        """
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            tables = ", ".join(map(str, (self.own_queue, *self.queues.values())))
            _run(connection, f"TRUNCATE {tables}")
            if self._load.left:
                _run(connection, f"DELETE FROM {self.delayed} WHERE {_NOT_WAITING}")
            elif not keeps_rows:
                _run(connection, f"TRUNCATE {self.delayed}")
            if self._load.made_once:
                _run(connection, _MADE.format(delayed=self.delayed, rows=self.rows))
            else:
                _run(
                    connection,
                    f"INSERT INTO {self.delayed} SELECT id, headers, body, due FROM bench_pristine"
                    + ("" if rows is None else f" LIMIT {rows}"),
                )
            _run(connection, f"VACUUM (ANALYZE) {self.delayed}")
            _run(connection, "CHECKPOINT")

    def add_due(self) -> None:
        """Add the rows that are due to the delayed table, under new ids."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            _run(
                connection,
                f"INSERT INTO {self.delayed} (headers, body, due)"
                " SELECT headers, body, due FROM bench_pristine WHERE is_due",
            )

    def count(self, *, is_first_hop: bool = False) -> Faults:
        """Count the arrived messages in the destinations, or after a first hop in the own queue."""
        found: Sequence[tuple[str, TableName]] = (
            [("headers::json ->> 'NServiceBus.SqlServer.ForwardDestination'", self.own_queue)]
            if is_first_hop
            else [(_literal(address), queue) for address, queue in self.queues.items()]
        )
        arrived = " UNION ALL ".join(
            f"SELECT headers::json ->> 'NServiceBus.MessageId' AS message_id, {address} AS address"
            f" FROM {queue}"
            for address, queue in found
        )
        with psycopg.connect(self.dsn) as connection:
            of = _COUNT_MADE if self._load.made_once else _COUNT
            text = of.format(arrived=arrived, delayed=self.delayed, rows=self.rows)
            (row,) = connection.execute(text.encode()).fetchall()
        return Faults(*row)

    @contextmanager
    def watching_journal(self) -> Iterator[list[int]]:
        """How many messages the journal holds, once a second within the block."""
        held, is_over = [0], threading.Event()

        def watch() -> None:
            with psycopg.connect(self.dsn, autocommit=True) as connection:
                while not is_over.wait(1):
                    rows = connection.execute(_HELD.encode()).fetchall()
                    held.append(int(rows[0][0]))

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield held
        finally:
            is_over.set()
            thread.join()

    def waiting(self) -> int:
        """How many of the messages that no sweep may take are in the store."""
        text = f"SELECT count(*) FROM {self.delayed} WHERE NOT ({_NOT_WAITING})"
        with psycopg.connect(self.dsn) as connection:
            row = connection.execute(text.encode()).fetchone()
        return int(row[0]) if row else 0

    def settings(self) -> dict[str, str]:
        """The server's settings that the figures depend on."""
        with psycopg.connect(self.dsn) as connection:
            rows = [connection.execute(f"SHOW {name}".encode()).fetchone() for name in _SETTINGS]
        return {name: row[0] for name, row in zip(_SETTINGS, rows, strict=True) if row}

    def row_bytes(self) -> int:
        """The average size of a row."""
        with psycopg.connect(self.dsn) as connection:
            row = connection.execute(
                b"SELECT avg(pg_column_size(p.*) - pg_column_size(message_id)"
                b" - pg_column_size(address) - 1)::int FROM bench_pristine p"
            ).fetchone()
        return int(row[0]) if row else 0


_KEEP_PRISTINE = """
CREATE UNLOGGED TABLE bench_pristine AS
SELECT id, headers, body, due,
       headers::json ->> 'NServiceBus.MessageId' AS message_id,
       headers::json ->> 'NServiceBus.SqlServer.ForwardDestination' AS address,
       due < clock_timestamp() AT TIME ZONE 'UTC' AS is_due
FROM {delayed}
"""
_OTHER_DUE = """
UPDATE bench_pristine p SET due = {due}
FROM (SELECT min(due), max(due) FROM bench_pristine WHERE is_due) AS of_due WHERE p.is_due
"""
# Headers like all others, and no body.
_WAITING = """
INSERT INTO {delayed} (id, headers, body, due)
SELECT gen_random_uuid(), p.headers, '', now() + interval '7 days' + n * interval '1 millisecond'
FROM generate_series(1, {waiting}) n, (SELECT headers FROM bench_pristine LIMIT 1) p
"""
# Each of the kept messages many times, with its number as the end of its id.
_MADE = """
INSERT INTO {delayed} (id, headers, body, due)
SELECT gen_random_uuid(),
       replace(p.headers, p.message_id, left(p.message_id, -12) || lpad(n::text, 12, '0')), '',
       now() - interval '2 days' + n * interval '1 millisecond'
FROM generate_series(1, {rows}) n
JOIN (
    SELECT headers, message_id, row_number() OVER () AS place, count(*) OVER () AS places
    FROM bench_pristine
) p ON p.place = n % p.places + 1
"""
_COUNT_MADE = """
WITH arrived AS ({arrived}), numbered AS (
    SELECT right(message_id, 12)::bigint AS n, count(*) AS copies FROM arrived GROUP BY 1
)
SELECT {rows} - count(*) FILTER (WHERE n BETWEEN 1 AND {rows}),
       coalesce(sum(copies), 0)::bigint - count(*) + (SELECT count(*) FROM {delayed}), 0
FROM numbered
"""
_HELD = "SELECT coalesce(sum(dispatched), 0) FROM duesweep_journal"
_RESTING = "Resting"
_PAUSED = """
INSERT INTO {delayed} (id, headers, body, due)
SELECT gen_random_uuid(), replace(p.headers, to_json(p.address)::text, '"Resting"'), '',
       now() - interval '4 days' + n * interval '1 millisecond'
FROM generate_series(1, {paused}) n, (SELECT headers, address FROM bench_pristine LIMIT 1) p
"""
# The load's own messages come due within a few days.
_NOT_WAITING = "due BETWEEN now() - interval '3 days' AND now() + interval '5 days'"
_COUNT = """
WITH arrived AS ({arrived}), counted AS (
    SELECT message_id, address, count(*) AS copies FROM arrived GROUP BY message_id, address
)
SELECT count(*) FILTER (WHERE p.is_due AND c.copies IS NULL),
       (coalesce(sum(c.copies), 0) - count(*) FILTER (WHERE p.id IS NOT NULL AND c.copies > 0)
        + count(*) FILTER (WHERE p.is_due AND c.copies > 0 AND d.id IS NOT NULL))::bigint,
       count(*) FILTER (WHERE NOT p.is_due AND (c.copies > 0 OR d.id IS NULL))
FROM bench_pristine p
FULL JOIN counted c ON c.message_id = p.message_id AND c.address = p.address
LEFT JOIN {delayed} d ON d.id = p.id
"""


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _run(connection: psycopg.Connection[tuple[object, ...]], text: str) -> None:
    connection.execute(text.encode())
