"""Tells systemd how a watcher does: sd_notify(3), without its library.

The protocol is a datagram to the socket that NOTIFY_SOCKET names; `@` begins an abstract name.
"""

import os
import socket
from collections.abc import Sequence
from contextlib import suppress

from duesweep.core.errors import DuesweepError, make_printable, shorten
from duesweep.watch.health import Health
from duesweep.watch.tick import Tick

_VARIABLE = "NOTIFY_SOCKET"


class Systemd:
    """An observer that tells systemd, where that started this process; else it does nothing.

    It gives no sign of life while one of `healths` hangs: systemd then starts the process again.
    """

    def __init__(self, healths: Sequence[Health]) -> None:
        self._healths = healths
        self._is_ready = False

    def ticked(self, tick: Tick) -> None:  # noqa: ARG002 - the contract's
        """READY after the first good tick, and a sign of life after each."""
        if not self._is_ready:
            self._is_ready = True
            _notify("READY=1", "STATUS=Sweeping as messages come due")
        self._live()

    def failed(self, error: DuesweepError) -> None:
        """A sign of life, too: to start the process again would not help."""
        self._live(f"STATUS={shorten(make_printable(str(error)))}")
        self._is_ready = False

    def close(self) -> None:
        """The watcher ends on purpose."""
        _notify("STOPPING=1")

    def _live(self, *lines: str) -> None:
        is_hanging = any(health.is_hanging for health in self._healths)
        _notify(*([] if is_hanging else ["WATCHDOG=1"]), *lines)


def _notify(*lines: str) -> None:
    address = os.environ.get(_VARIABLE)
    if not address:
        return
    name = "\0" + address[1:] if address.startswith("@") else address
    # A watcher goes on, whatever becomes of systemd's socket.
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sent:
        sent.connect(name)
        sent.sendall("\n".join(lines).encode())
