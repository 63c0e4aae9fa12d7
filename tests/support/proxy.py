"""A TCP proxy before a broker or a database: it counts, cuts, holds bytes back, falls silent."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum

_CHUNK = 65_536


class Way(Enum):
    """A direction."""

    TO_SERVER = "to the server"
    TO_CLIENT = "to the client"


class Moment(Enum):
    """When a silence begins, of the bytes that are awaited."""

    BEFORE = "before the server gets them"
    AFTER = "after the server has answered them"


@dataclass(frozen=True, slots=True)
class _Silence:
    """Of these ways nothing is forwarded; with `hides_ends`, not the end of a connection either."""

    ways: frozenset[Way]
    hides_ends: bool


_COMPLETE = _Silence(frozenset(Way), hides_ends=True)


@dataclass(frozen=True, slots=True)
class _Trap:
    """`awaited` are seen one after the other; `is_for_all`: the silence is all connections'."""

    awaited: tuple[bytes, ...]
    moment: Moment
    is_for_all: bool
    freezes: bool


class Proxy:
    """Forwards to `target`, a port of loopback. Limits are one connection's bytes of one way."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        self.cuts = 0
        self.has_sprung = threading.Event()
        self._limits: dict[Way, tuple[int, bool]] = {}
        self._holds: dict[Way, int] = {}
        self._silence: _Silence | None = None
        self._trap: _Trap | None = None
        self._flows = threading.Event()
        self._flows.set()
        self._sockets: list[socket.socket] = []
        self._guard = threading.Lock()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def cut_after(self, count: int, way: Way, *, each: bool = False) -> None:
        """Cut the next connection (`each`: every one) after this many bytes go that way."""
        self._limits[way] = (count, each)

    def hold_after(self, count: int, way: Way) -> None:
        """Let only this many bytes of a connection through, and leave it open."""
        self._holds[way] = count

    def fall_silent(self, *ways: Way, hides_ends: bool = False) -> None:
        """Take whatever is sent, on new connections too, and forward nothing of it. One way only,
        where it is given. With `hides_ends`, neither side learns that the other one has gone.
        """
        self._silence = _Silence(frozenset(ways or Way), hides_ends)

    def fall_silent_at(
        self,
        *awaited: bytes,
        moment: Moment = Moment.BEFORE,
        for_all: bool = True,
        freezes: bool = False,
    ) -> None:
        """Fall silent and hide ends when clients have sent these, each within one sent
        piece. Unless `for_all`, each connection that sends the last of them falls silent
        alone. With `freezes`, nothing more is taken then.
        """
        self.has_sprung.clear()
        self._trap = _Trap(awaited, moment, for_all, freezes)

    def freeze(self) -> None:
        """Read no more: the buffers of the systems in between fill up."""
        self._flows.clear()

    def heal(self) -> None:
        """Serve new connections as if nothing had been, and reset existing ones."""
        self._trap = None
        self._holds.clear()
        self._reset()
        self._silence = None
        self._flows.set()

    def cut(self) -> None:
        with self._guard:
            self.cuts += 1
        self._reset()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        # A connection that it has just accepted is also to be cut.
        self._threads[0].join()
        self._listener.close()
        self._flows.set()
        self.cut()
        for thread in self._threads:
            thread.join()

    def _reset(self) -> None:
        with self._guard:
            sockets, self._sockets = self._sockets, []
        for one in sockets:
            # So that a waiting thread wakes up; that one closes it.
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._start(client)

    def _start(self, client: socket.socket) -> None:
        self.connections += 1
        try:
            server = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            client.close()
            return
        pair = _Pair(client, server)
        with self._guard:
            self._sockets += [client, server]
        for way in Way:
            thread = threading.Thread(target=self._pump, args=(pair, way), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _pump(self, pair: "_Pair", way: Way) -> None:
        source, _ = pair.ends(way)
        passed: int | None = 0
        with suppress(OSError):
            while passed is not None and (data := source.recv(_CHUNK)):
                self._flows.wait()
                if way is Way.TO_SERVER and pair.silence is None:
                    self._spring(pair, data)
                if self._silence_of(pair, way) is None:
                    passed = self._forward(pair, way, data, passed)
        silence = self._silence_of(pair, way)
        pair.end(tells=silence is None or not silence.hides_ends)

    def _forward(self, pair: "_Pair", way: Way, data: bytes, passed: int) -> int | None:
        """Forward bytes that the limits allow; how many bytes went that way, or None: it is cut."""
        _, sink = pair.ends(way)
        limit, each = self._limits.get(way, (None, False))
        if limit is not None and passed + len(data) > limit:
            sink.sendall(data[: max(0, limit - passed)])
            self.cuts += 1
            if not each:
                del self._limits[way]
            return None
        hold = self._holds.get(way)
        if hold is not None:
            data = data[: max(0, hold - passed)]
        sink.sendall(data)
        return passed + len(data)

    def _spring(self, pair: "_Pair", data: bytes) -> None:
        """Begin the silence, if this is the last that is awaited."""
        trap = self._sprung(data)
        if trap is None:
            return
        self.has_sprung.set()
        # Before the server gets anything: no answer is to get back.
        pair.silence = _COMPLETE
        if trap.is_for_all:
            self._silence = _COMPLETE
        if trap.freezes:
            self.freeze()
        if trap.moment is Moment.AFTER:
            pair.server.sendall(data)

    def _sprung(self, data: bytes) -> _Trap | None:
        with self._guard:
            trap = self._trap
            if trap is None or trap.awaited[0] not in data:
                return None
            if len(trap.awaited) == 1:
                return trap
            self._trap = replace(trap, awaited=trap.awaited[1:])
            return None

    def _silence_of(self, pair: "_Pair", way: Way) -> _Silence | None:
        """Of a connection: once silent in a way, it stays silent."""
        pair.silence = pair.silence or self._silence
        return pair.silence if pair.silence is not None and way in pair.silence.ways else None


class _Pair:
    """The two ends of a connection, which are closed when both ways have ended."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.silence: _Silence | None = None
        self._guard = threading.Lock()
        self._open_ways = len(Way)

    def ends(self, way: Way) -> tuple[socket.socket, socket.socket]:
        ends = (self.client, self.server)
        return ends if way is Way.TO_SERVER else ends[::-1]

    def end(self, *, tells: bool) -> None:
        """One way has ended; with `tells`, both sides learn it."""
        for one in (self.client, self.server) if tells else ():
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        with self._guard:
            self._open_ways -= 1
            is_over = not self._open_ways
        if is_over:
            self.client.close()
            self.server.close()


@contextmanager
def proxied(target: int) -> Iterator[Proxy]:
    proxy = Proxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
