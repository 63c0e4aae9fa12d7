"""A TCP proxy on loopback, whose connections can be cut."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_CHUNK = 65_536


class Proxy:
    """Passes on what comes to `port`; `passed` counts the bytes that went to the server."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.passed = 0
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._guard = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> int:
        """Cut every connection; how many there were."""
        with self._guard:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
        return len(pairs)

    def close(self) -> None:
        """Listen no more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                with self._guard:
                    self._pairs.append((client, server))
                for source, sink, is_up in ((client, server, True), (server, client, False)):
                    arguments = (source, sink, is_up)
                    threading.Thread(target=self._pass, args=arguments, daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, is_up: bool) -> None:  # noqa: FBT001 - a thread's argument
        with suppress(OSError):
            while chunk := source.recv(_CHUNK):
                sink.sendall(chunk)
                if is_up:
                    self.passed += len(chunk)
        with self._guard:
            self._pairs = [pair for pair in self._pairs if source not in pair]
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@contextmanager
def proxy_to(port: int) -> Iterator[Proxy]:
    """A proxy to a port on loopback while it is needed."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
