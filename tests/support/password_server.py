"""A PostgreSQL server that asks everybody but its administrator for a password."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import psycopg
from psycopg import sql

from duesweep.demo.server import EmbeddedServer
from support.ports import free_port
from support.waiting import until

_RULES = """
local all all trust
host all postgres 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
"""


@contextmanager
def password_server(folder: Path) -> Iterator[EmbeddedServer]:
    """The server, with its data in `folder`."""
    with EmbeddedServer(folder, port=free_port(), TimeZone="UTC") as server:
        before = _load_time(server)
        (folder / "pgdata" / "pg_hba.conf").write_text(_RULES, "utf-8")
        with psycopg.connect(server.dsn, autocommit=True) as admin:
            admin.execute("SELECT pg_reload_conf()")
        # The server reads the rules later, and lets everybody in until then.
        until(lambda: _load_time(server) > before)
        yield server


def _load_time(server: EmbeddedServer) -> datetime:
    """When the server had read its files last, by a new session."""
    with psycopg.connect(server.dsn) as session:
        return next(session.execute("SELECT pg_conf_load_time()"))[0]


def create_role(dsn: str, name: str, password: str) -> None:
    """A role that may log in with this password."""
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(
            sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(
                sql.Identifier(name), sql.Literal(password)
            )
        )
