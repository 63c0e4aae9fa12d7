"""TLS before a PostgreSQL server that has none: the front speaks it, and passes on the rest."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from support.certificates import Authority

_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"
_CHUNK = 65_536


@dataclass(slots=True)
class TlsFront:
    """Listens on loopback for `target`. `secured` counts the connections that finished the
    handshake, `plain` those that asked for no TLS, which are closed.
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
