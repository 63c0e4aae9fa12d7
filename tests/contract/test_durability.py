"""Commits are on the server's disk, whatever an administrator has set for speed."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from duesweep.core.policy import DEFAULT_TIMEOUTS
from duesweep.drivers.postgresql.session import connect
from duesweep.operations.demo.server import EmbeddedServer
from support.endpoint import Endpoint
from support.ports import free_port
from support.postgresql_server import PostgreSqlEndpoint, endpoint_in_postgresql

_COUNT = 500


@pytest.mark.parametrize(
    ("set_to", "used"),
    [("off", "on"), *((value,) * 2 for value in ("local", "remote_write", "remote_apply", "on"))],
)
def test_session_waits_for_the_disk_and_leaves_waiting_for_replicas_as_it_is_set(
    set_to: str, used: str, endpoint: Endpoint
) -> None:
    name = endpoint.server.admin.info.dbname
    endpoint.execute(f"ALTER DATABASE {name} SET synchronous_commit = {set_to}")

    with connect(endpoint.dsn, DEFAULT_TIMEOUTS.task) as session:
        session.script(
            "CREATE TABLE public.seen AS SELECT current_setting('synchronous_commit') AS used"
        )
    assert [row.used for row in endpoint.fetch("SELECT used FROM public.seen")] == [used]


@pytest.fixture
def queues(
    open_folder: Path, tmp_path: Path
) -> Iterator[tuple[EmbeddedServer, PostgreSqlEndpoint]]:
    """Queues on a server of their own, which writes commits to its disk after ten seconds."""
    settings = {"TimeZone": "UTC", "synchronous_commit": "on", "wal_writer_delay": "10s"}
    with EmbeddedServer(open_folder, port=free_port(), trusts_all=True, **settings) as server:
        with psycopg.connect(server.dsn, autocommit=True) as admin:
            endpoint = endpoint_in_postgresql(server.dsn, tmp_path, admin)
            endpoint.set_up("Billing")
            endpoint.execute("ALTER DATABASE postgres SET synchronous_commit = off")
        yield server, endpoint


def test_crash_of_the_queues_server_loses_no_message_that_was_reported_as_delivered(
    queues: tuple[EmbeddedServer, PostgreSqlEndpoint], endpoint: Endpoint
) -> None:
    server, beside = queues
    endpoint.set_up()
    endpoint.delay_many(_COUNT, ["Billing"])

    swept = endpoint.document("sweep", queues__default__dsn=beside.dsn)
    server.restart()

    assert swept["dispatched"] == _COUNT
    with psycopg.connect(server.dsn) as admin:
        assert admin.execute('SELECT count(*) FROM "Billing"').fetchone() == (_COUNT,)
