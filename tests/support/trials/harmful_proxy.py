"""A proxy that harms a connection once, at the moment when a client sends something."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Any

from support.proxy import Proxy, Way

_PIECE = 16
_PAUSE_SECONDS = 0.002
# So much drips; then it flows again.
_DRIPPING_BYTES = 6_000


class Harm(Enum):
    """What happens to the connection."""

    CUT = "cut"
    STALL = "stall"
    DRIP = "drip"
    BLACK_HOLE = "black hole"


class When(Enum):
    """When it happens, of the bytes that are awaited."""

    BEFORE = "before"
    IN = "in"
    AFTER = "after"


class HarmfulProxy(Proxy):
    """It stalls one connection for good, all of them and new ones (black hole), cuts one, or lets
    all drip. Before the server gets the awaited data, when it has half of it, or after it has
    answered; the client does not get that answer.
    """

    def __init__(self, target: int) -> None:
        self._harm: tuple[Harm, When] | None = None
        self._dripping = 0
        self._doomed: Any = None
        super().__init__(target)

    def harm_at(self, *awaited: bytes, harm: Harm, when: When) -> None:
        """Do harm to the client that sends the last of these."""
        self._harm = harm, when
        self.fall_silent_at(*awaited)

    def heal(self) -> None:
        self._harm, self._dripping, self._doomed = None, 0, None
        super().heal()

    def _spring(self, pair: Any, data: bytes) -> None:
        if self._harm is None or self._sprung(data) is None:
            return
        (harm, when), self._harm, self._trap = self._harm, None, None
        self.has_sprung.set()
        if harm is Harm.DRIP:
            self._dripping = _DRIPPING_BYTES
        elif harm is Harm.CUT:
            self._cut(pair, data, when)
        else:
            self.fall_silent(hides_ends=True)
            pair.silence = self._silence
            if harm is Harm.STALL:
                self._silence = None
            pair.server.sendall(_part(data, when))

    def _cut(self, pair: Any, data: bytes, when: When) -> None:
        self.cuts += 1
        if when is When.AFTER:
            self._doomed = pair
            return
        pair.server.sendall(_part(data, when))
        _shut(pair)
        raise OSError("cut")

    def _forward(self, pair: Any, way: Way, data: bytes, passed: int) -> int | None:
        if pair is self._doomed and way is Way.TO_CLIENT:
            # The answer is here, and the client never gets it.
            _shut(pair)
            return None
        going: int | None = passed
        while self._dripping > 0 and data and going is not None:
            self._dripping -= _PIECE
            going = super()._forward(pair, way, data[:_PIECE], going)
            data = data[_PIECE:]
            threading.Event().wait(_PAUSE_SECONDS)
        if going is None or not data:
            return going
        return super()._forward(pair, way, data, going)


def _part(data: bytes, when: When) -> bytes:
    return {When.BEFORE: b"", When.IN: data[: len(data) // 2], When.AFTER: data}[when]


def _shut(pair: Any) -> None:
    for one in (pair.client, pair.server):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@contextmanager
def harmful_proxy(target: int) -> Iterator[HarmfulProxy]:
    proxy = HarmfulProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
