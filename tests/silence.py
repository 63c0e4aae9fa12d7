"""A server that falls silent: it acknowledges what it is sent, and never answers again."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum

_CHUNK = 65_536


class Moment(Enum):
    """When the silence begins, of the bytes that are awaited."""

    BEFORE = "before the server gets them"
    AFTER = "after the server has answered them"


@dataclass(frozen=True, slots=True)
class _Trap:
    """`awaited` are seen one after the other; `is_for_all`: the silence is all connections'."""

    awaited: tuple[bytes, ...]
    moment: Moment
    is_for_all: bool


class SilentProxy:
    """Forwards to `target`, a port of loopback, until it falls silent: for all connections, old and
    new. It takes all that it is sent, and closes nothing.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.is_silent = threading.Event()
        self.has_sprung = threading.Event()
        # Whether it does not even take what it is sent, beyond what its kernel does.
        self.is_frozen = False
        self._healed = threading.Event()
        self._trap: _Trap | None = None
        self._sockets: list[socket.socket] = []
        self._guard = threading.Lock()
        self._threads = [threading.Thread(target=self._accept, name="silent proxy", daemon=True)]
        self._threads[0].start()

    def fall_silent(self) -> None:
        """From now on, nothing comes through."""
        self.is_silent.set()

    def fall_silent_at(
        self, *awaited: bytes, moment: Moment = Moment.BEFORE, for_all: bool = True
    ) -> None:
        """Fall silent when clients have sent these, each within one piece of what they send. But
        `for_all`, each connection that sends the last of them falls silent alone.
        """
        self.has_sprung.clear()
        self._trap = _Trap(awaited, moment, for_all)

    def heal(self) -> None:
        """Serve new connections again; what the silence has seen is reset."""
        self._trap = None
        self._reset()
        self.is_silent.clear()
        self._healed.clear()

    def close(self) -> None:
        """End everything."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._reset()
        for thread in self._threads:
            thread.join()

    def _reset(self) -> None:
        self._healed.set()
        with self._guard:
            sockets, self._sockets = self._sockets, []
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with self._guard:
                    self._sockets.append(client)
                self._start(self._serve, client)

    def _start(self, work: object, *arguments: socket.socket) -> None:
        thread = threading.Thread(target=work, args=arguments, name="silent proxy", daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            if self.is_silent.is_set():
                self._swallow(client)
                return
            with socket.create_connection(("127.0.0.1", self._target)) as server:
                with self._guard:
                    self._sockets.append(server)
                is_alone = threading.Event()
                back = threading.Thread(
                    target=self._pass_back,
                    args=(server, client, is_alone),
                    name="silent proxy",
                    daemon=True,
                )
                back.start()
                self._pass_on(client, server, is_alone)
                # In silence, the server does not learn either that its client has gone.
                if not (self.is_silent.is_set() or is_alone.is_set()):
                    with suppress(OSError):
                        server.shutdown(socket.SHUT_RDWR)
                back.join()

    def _pass_on(
        self, client: socket.socket, server: socket.socket, is_alone: threading.Event
    ) -> None:
        while data := client.recv(_CHUNK):
            trap = self._sprung(data)
            if trap is not None:
                self.has_sprung.set()
                # Before the server gets anything: no answer is to get back.
                (self.is_silent if trap.is_for_all else is_alone).set()
                if trap.moment is Moment.AFTER:
                    server.sendall(data)
            if self.is_silent.is_set() or is_alone.is_set():
                self._swallow(client)
                return
            server.sendall(data)

    def _sprung(self, data: bytes) -> _Trap | None:
        with self._guard:
            trap = self._trap
            if trap is None or trap.awaited[0] not in data:
                return None
            if len(trap.awaited) == 1:
                return trap
            self._trap = replace(trap, awaited=trap.awaited[1:])
            return None

    def _pass_back(
        self, server: socket.socket, client: socket.socket, is_alone: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := server.recv(_CHUNK):
                if not (self.is_silent.is_set() or is_alone.is_set()):
                    client.sendall(data)
            if not (self.is_silent.is_set() or is_alone.is_set()):
                client.shutdown(socket.SHUT_RDWR)

    def _swallow(self, client: socket.socket) -> None:
        if self.is_frozen:
            self._healed.wait()
        while client.recv(_CHUNK):
            pass


@contextmanager
def silenced(target: int) -> Iterator[SilentProxy]:
    """A proxy while it is needed."""
    proxy = SilentProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
