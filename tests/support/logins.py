"""Certificates, and PostgreSQL servers that ask for them or for a password."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import psycopg
import trustme
from psycopg import sql

from duesweep.operations.demo.server import EmbeddedServer
from support.ports import free_port
from support.waiting import until

_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"
_CHUNK = 65_536


class Authority:
    """A certificate authority, whose files are in a folder of its own in `folder`."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder / name
        self._folder.mkdir()
        self._authority = trustme.CA(organization_name=name)
        self.certificate = self._folder / "authority.pem"
        self._authority.cert_pem.write_to_path(self.certificate)

    def sign(self, name: str) -> tuple[Path, Path]:
        """Certificate and key for the host or client of a name."""
        certificate, key = (self._folder / f"{name}.{kind}" for kind in ("pem", "key"))
        signed = self._authority.issue_cert(name, common_name=name)
        signed.cert_chain_pems[0].write_to_path(certificate)
        signed.private_key_pem.write_to_path(key)
        # libpq reads no key that others may read.
        key.chmod(0o600)
        return certificate, key


@dataclass(slots=True)
class TlsFront:
    """Listens on loopback for `target`. `secured` counts the connections that finished the
    handshake, `plain` logins that asked for no TLS, which are closed.
    """

    target: int
    context: ssl.SSLContext
    port: int = 0
    secured: int = 0
    plain: int = 0

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            if client.recv(len(_REQUEST), socket.MSG_WAITALL) != _REQUEST:
                self.plain += 1
                return
            client.sendall(b"S")
            with (
                self.context.wrap_socket(client, server_side=True) as secured,
                socket.create_connection(("127.0.0.1", self.target)) as server,
            ):
                self.secured += 1
                back = threading.Thread(target=_forward, args=(server, secured), daemon=True)
                back.start()
                _forward(secured, server)
                back.join()


@contextmanager
def tls_front(
    target: int, certificate: tuple[Path, Path], clients: Authority | None = None
) -> Iterator[TlsFront]:
    """A front with this certificate and key; with `clients`, it asks for a certificate of these."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    if clients is not None:
        context.load_verify_locations(clients.certificate)
        context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listener:
        front = TlsFront(target, context, port=listener.getsockname()[1])
        threading.Thread(target=front.serve, args=(listener,), daemon=True).start()
        yield front


def _forward(source: socket.socket, to: socket.socket) -> None:
    with suppress(OSError):
        while received := source.recv(_CHUNK):
            to.sendall(received)
    with suppress(OSError):
        to.shutdown(socket.SHUT_RDWR)


_RULES = """
local all all trust
host all postgres 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
"""


@contextmanager
def password_server(folder: Path) -> Iterator[EmbeddedServer]:
    """The server, with its data in `folder`."""
    with EmbeddedServer(folder, port=free_port(), trusts_all=True, TimeZone="UTC") as server:
        before = _load_time(server)
        (folder / "pgdata" / "pg_hba.conf").write_text(_RULES, "utf-8")
        with psycopg.connect(server.dsn, autocommit=True) as admin:
            admin.execute("SELECT pg_reload_conf()")
        # The server reads the rules later, and lets all users in until then.
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
