"""Ends the wait for a server that takes what it is sent, and never answers.

Microsoft's driver does not: a query time-out makes it ask the server to stop, and it waits for the
answer to that twice as long again; a fetch and a login wait for ever. What ends its wait in every
case is that the connection ends. So a thread shuts the session's socket down, which it finds among
the process's own: the driver tells nobody which it is.
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

import pyodbc

from duesweep.errors import StoreError

_FOLDER = "/dev/fd"
_LONGEST_PAUSE_SECONDS = 0.5
# So that two threads that open sessions do not take each other's sockets for their own.
_opening = threading.Lock()

Name = tuple[object, ...]


class SilenceWatch:
    """One session's. Where the system does not list a process's files, nothing is cut, and the
    driver's own time-outs are all there is.
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
    def opening(self, seconds: float) -> Iterator[None]:
        """While the session is opened, login included: `seconds` at most."""
        if not _opening.acquire(timeout=seconds):
            self._limit = seconds
            raise self._silence()
        try:
            known = _connected()
            self._before = set(known)
            _close(known.values())
            self._start(min(seconds, self._answer_seconds))
            with self.answer(seconds):
                yield
            self._find()
            self._is_open = True
        except BaseException:
            self.close()
            raise
        finally:
            _opening.release()

    @contextmanager
    def answer(self, seconds: float | None = None) -> Iterator[None]:
        """While one answer is waited for. Raises `StoreError`, transient, where it took too long,
        whatever the driver made of that.
        """
        if self._is_cut:
            raise self._silence()
        self._limit = self._answer_seconds if seconds is None else seconds
        self.go_on()
        try:
            yield
        except pyodbc.Error as error:
            if self._took_too_long():
                raise self._silence() from error
            raise
        finally:
            self._deadline = math.inf

    @contextmanager
    def patient(self, seconds: float) -> Iterator[None]:
        """While each answer may take so long."""
        before, self._answer_seconds = self._answer_seconds, seconds
        try:
            yield
        finally:
            self._answer_seconds = before

    def _took_too_long(self) -> bool:
        # Some of the driver's calls hold Python's lock, and the other thread then comes late.
        return self._is_cut or time.monotonic() > self._deadline

    def go_on(self, seconds: float | None = None) -> None:
        """An answer has come, and another is waited for, `seconds` or as long again."""
        self._deadline = time.monotonic() + (self._limit if seconds is None else seconds)

    def cut_if_late(self) -> None:
        """End the connection where an answer has taken too long."""
        if time.monotonic() <= self._deadline:
            return
        self._find()
        if self._own is not None:
            self._is_cut = True
            with suppress(OSError):
                self._own.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Watch no more. Until then the server sees no end of the session."""
        self._closed.set()
        if self._own is not None:
            self._own.close()

    def __del__(self) -> None:
        self.close()

    def _start(self, seconds: float) -> None:
        # Weakly, so that a session that nobody closed can still end.
        arguments = (weakref.ref(self), self._closed, min(_LONGEST_PAUSE_SECONDS, seconds / 4))
        threading.Thread(target=_guard, args=arguments, name="sqlserver-watch", daemon=True).start()

    def _find(self) -> None:
        """The socket that was connected to the server's port since, if it is the only one."""
        if self._own is not None:
            return
        connected = _connected()
        new = [one for name, one in connected.items() if name not in self._before]
        # Only of a named instance the port is unknown.
        ours = new if self._port is None else [s for s in new if _port(s) == self._port]
        self._own = ours[0] if len(ours) == 1 else None
        _close(one for one in connected.values() if one is not self._own)

    def _silence(self) -> StoreError:
        if not self._is_open and self._own is None:
            return StoreError(
                f"SQL Server at {self._server} could not be connected to within "
                f"{self._limit:.0f} s",
                advice="see whether it runs, and whether its name and port are right",
                transient=True,
            )
        return StoreError(
            f"SQL Server at {self._server} has not answered for {self._limit:.0f} s",
            advice=(
                "see whether it, or a proxy before it, is stuck, or raise timeouts.silence_seconds"
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


def _connected() -> dict[Name, socket.socket]:
    """This process's connected sockets, each once more, by both their ends."""
    found: dict[Name, socket.socket] = {}
    if socket.getdefaulttimeout() is not None:
        # Python would make each of them, and so the originals, non-blocking.
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
                # One that has been duplicated is there more than once.
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
