"""Finds out that a server is not there, and ends the wait for one that accepts data and
never answers.

Microsoft's driver does neither. It tries a name that is unknown, or a port that refuses it, until
its login time-out is over, and then does not name the cause. After a query time-out it asks the
server to stop, and waits twice as long again for the answer to that. A fetch and a login wait
without any limit. Only the end of the connection ends all these waits. So a thread shuts the
session's socket down. The driver does not say which socket it uses, so the thread searches the
sockets of this process.
"""

import math
import os
import socket
import stat
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from duesweep.core.errors import SilentServiceError, StoreError
from duesweep.drivers.sqlserver.dsn import OdbcDsn, odbc

_FOLDER = "/dev/fd"
_LONGEST_PAUSE_SECONDS = 0.5
# A refusal comes at once. For anything else, the driver has its own limits and texts.
_PORT_SECONDS = 1.0
# Not TCP.
_PIPES = ("np:", "lpc:", "admin:")
# Only one thread opens a session at a time: otherwise it could take another's socket for its own.
_opening = threading.Lock()

Name = tuple[object, ...]


class SilenceWatch:
    """Watches one session. If the system does not list the files of a process, it cannot end
    any wait, and only the driver's own time-outs apply.
    """

    def __init__(self, server: str, port: int | None, answer_seconds: float) -> None:
        self._server = server
        self._port = port
        self._answer_seconds = answer_seconds
        self._limit = answer_seconds
        self._deadline = math.inf
        self._is_cut = False
        self._is_open = False
        self._own: socket.socket | None = None
        self._before: set[Name] = set()
        self._closed = threading.Event()

    @contextmanager
    def watch_opening(self, seconds: float) -> Iterator[None]:
        """In the block, the session is opened, login included: `seconds` at most."""
        if not _opening.acquire(timeout=seconds):
            self._limit = seconds
            raise self._make_error()
        try:
            known = _list_sockets()
            self._before = set(known)
            _close(known.values())
            self._start(min(seconds, self._answer_seconds))
            with self.watch_answer(seconds):
                yield
            self._find_socket()
            self._is_open = True
        except BaseException:
            self.close()
            raise
        finally:
            _opening.release()

    @contextmanager
    def watch_answer(self, seconds: float | None = None) -> Iterator[None]:
        """In the block, one answer is waited for, at most `seconds` (None: `answer_seconds`). If it
        took too long, raises a transient `StoreError`, whatever error the driver raised.
        """
        if self._is_cut:
            raise self._make_error()
        self._limit = self._answer_seconds if seconds is None else seconds
        self.restart_timer()
        try:
            yield
        except odbc().Error as error:
            if self._took_too_long():
                raise self._make_error() from error
            raise
        finally:
            self._deadline = math.inf

    @contextmanager
    def wait_longer(self, seconds: float) -> Iterator[None]:
        """In the block, each answer may take `seconds`."""
        before, self._answer_seconds = self._answer_seconds, seconds
        try:
            yield
        finally:
            self._answer_seconds = before

    def _took_too_long(self) -> bool:
        # Some of the driver's calls hold Python's lock, and then the other thread is late.
        return self._is_cut or time.monotonic() > self._deadline

    def restart_timer(self, seconds: float | None = None) -> None:
        """Start the wait for the next answer: `seconds`, or as long as the last one."""
        self._deadline = time.monotonic() + (self._limit if seconds is None else seconds)

    def cut_if_late(self) -> None:
        """End the connection where an answer has taken too long."""
        if time.monotonic() <= self._deadline:
            return
        self._find_socket()
        if self._own is not None:
            self._is_cut = True
            with suppress(OSError):
                self._own.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop watching. Until then the server does not see the end of the session."""
        self._closed.set()
        if self._own is not None:
            self._own.close()

    def __del__(self) -> None:
        self.close()

    def _start(self, seconds: float) -> None:
        # A weak reference: an unclosed session can still be collected.
        arguments = (weakref.ref(self), self._closed, min(_LONGEST_PAUSE_SECONDS, seconds / 4))
        threading.Thread(target=_guard, args=arguments, name="sqlserver-watch", daemon=True).start()

    def _find_socket(self) -> None:
        """Find the session's socket: the only new one that is connected to the server's port. The
        port is unknown for a named instance, and another one if the server sent the driver on to a
        replica or node, as Azure does: then it is the only new one.
        """
        if self._own is not None:
            return
        connected = _list_sockets()
        new = [one for name, one in connected.items() if name not in self._before]
        ours = [one for one in new if _port(one) == self._port] or new
        self._own = ours[0] if len(ours) == 1 else None
        _close(one for one in connected.values() if one is not self._own)

    def _make_error(self) -> StoreError:
        if not self._is_open and self._own is None:
            return StoreError(
                f"No connection to SQL Server at {self._server} within {self._limit:.0f} s",
                advice="check whether it runs, and whether its name and port are right",
                transient=True,
            )
        return SilentServiceError(
            f"SQL Server at {self._server} has not answered for {self._limit:.0f} s",
            advice=(
                "check whether it, or a proxy before it, is stuck, or raise "
                "timeouts.silence_seconds"
            ),
            transient=True,
        )


def _guard(reference: "weakref.ref[SilenceWatch]", closed: threading.Event, pause: float) -> None:
    while not closed.wait(pause):
        watch = reference()
        if watch is None:
            return
        watch.cut_if_late()
        del watch


def _list_sockets() -> dict[Name, socket.socket]:
    """Duplicates of this process's connected sockets, by the addresses of both ends."""
    found: dict[Name, socket.socket] = {}
    if socket.getdefaulttimeout() is not None:
        # Python would make the duplicates non-blocking, and with them the originals.
        return found
    for entry in os.listdir(_FOLDER) if os.path.isdir(_FOLDER) else ():  # noqa: PTH112, PTH208 - no paths
        with suppress(OSError):
            number = int(entry)
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                one = socket.socket(fileno=os.dup(number))
                try:
                    name = (one.getsockname(), one.getpeername())
                except OSError:
                    one.close()
                    continue
                # A socket that was duplicated is in the list more than once.
                if found.setdefault(name, one) is not one:
                    one.close()
    return found


def _port(one: socket.socket) -> int | None:
    try:
        name = one.getpeername()
    except OSError:
        return None
    return name[1] if isinstance(name, tuple) else None


def _close(sockets: Iterable[socket.socket]) -> None:
    for one in sockets:
        one.close()


def refuse_closed_port(dsn: OdbcDsn) -> None:
    """Raise a transient `StoreError` if the server's name is unknown, or if its port is
    closed.
    """
    is_tcp = not dsn.pairs.get("server", "").lower().startswith(_PIPES)
    # A failover partner is another server.
    if dsn.port is None or not is_tcp or "failover_partner" in dsn.pairs:
        return
    try:
        socket.create_connection((dsn.host, dsn.port), _PORT_SECONDS).close()
    except socket.gaierror as error:
        raise _unreachable(dsn, f"{dsn.host} is unknown here ({error.strerror})") from error
    except ConnectionRefusedError as error:
        text = f"port {dsn.port} of {dsn.host} refuses the connection"
        raise _unreachable(dsn, text) from error
    except OSError:
        return


def _unreachable(dsn: OdbcDsn, text: str) -> StoreError:
    return StoreError(
        f"Cannot connect to SQL Server at {dsn.server}: {text}",
        transient=True,
        advice="check that it runs, and that its name and port in the dsn are right",
    )
