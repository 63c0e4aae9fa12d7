"""A TCP proxy in front of a broker, or a database, which cuts, holds up, and swallows what goes
through it.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum

_CHUNK = 4_096


class Way(Enum):
    """A direction."""

    TO_BROKER = "to the broker"
    TO_CLIENT = "to the client"


class Proxy:
    """Listens on `port` of loopback. Limits are the bytes of one connection that go one way."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        self.cuts = 0
        self._limits: dict[Way, tuple[int, bool]] = {}
        self._holds: dict[Way, int] = {}
        self._silent: set[Way] = set()
        self._speaks = threading.Event()
        self._speaks.set()
        self._sockets: list[socket.socket] = []
        self._guard = threading.Lock()
        self._threads = [threading.Thread(target=self._accept, name="proxy")]
        self._threads[0].start()

    def cut_after(self, count: int, way: Way, *, each: bool = False) -> None:
        """Cut the next connection (`each`: every one) that has so many bytes go that way."""
        self._limits[way] = (count, each)

    def hold_after(self, count: int, way: Way) -> None:
        """Let only so many bytes of a connection through, and leave it open."""
        self._holds[way] = count

    def fall_silent(self, *ways: Way) -> None:
        """Accept all that is sent, on new connections too, and forward nothing, as a stuck
        proxy does: no end, no reset. One way only, where it is given.
        """
        self._silent = set(ways or Way)

    def freeze(self) -> None:
        """Read nothing more: the buffers of the systems in between fill up."""
        self._speaks.clear()

    def speak_again(self) -> None:
        """To new connections, and to those that were frozen, as if nothing had been."""
        self._silent.clear()
        self._holds.clear()
        self._speaks.set()

    def cut(self) -> None:
        """Cut all connections."""
        with self._guard:
            self.cuts += 1
            sockets, self._sockets = self._sockets, []
        for one in sockets:
            # Wakes the thread that waits for it; that thread closes it.
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End everything."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        # A connection that it has just accepted is to be cut, too.
        self._threads[0].join()
        self._listener.close()
        self._speaks.set()
        self.cut()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._start(client)

    def _start(self, client: socket.socket) -> None:
        self.connections += 1
        try:
            broker = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            client.close()
            return
        pair = _Pair(client, broker)
        with self._guard:
            self._sockets += [client, broker]
        for way in Way:
            thread = threading.Thread(target=self._pump, args=(pair, way), name="proxy")
            self._threads.append(thread)
            thread.start()

    def _pump(self, pair: "_Pair", way: Way) -> None:
        source, sink = pair.ends(way)
        passed = 0
        is_silent = False
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                self._speaks.wait()
                is_silent = is_silent or way in self._silent
                if is_silent:
                    continue
                limit, each = self._limits.get(way, (None, False))
                if limit is not None and passed + len(data) > limit:
                    sink.sendall(data[: max(0, limit - passed)])
                    self.cuts += 1
                    if not each:
                        del self._limits[way]
                    break
                hold = self._holds.get(way)
                if hold is not None:
                    data = data[: max(0, hold - passed)]
                sink.sendall(data)
                passed += len(data)
        pair.end()


class _Pair:
    """The two ends of a connection, which are closed when both ways have ended."""

    def __init__(self, client: socket.socket, broker: socket.socket) -> None:
        self._client = client
        self._broker = broker
        self._guard = threading.Lock()
        self._open_ways = len(Way)

    def ends(self, way: Way) -> tuple[socket.socket, socket.socket]:
        ends = (self._client, self._broker)
        return ends if way is Way.TO_BROKER else ends[::-1]

    def end(self) -> None:
        for one in (self._client, self._broker):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        with self._guard:
            self._open_ways -= 1
            is_over = not self._open_ways
        if is_over:
            self._client.close()
            self._broker.close()


@contextmanager
def proxied(target: int) -> Iterator[Proxy]:
    """A proxy while it is needed."""
    proxy = Proxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
