"""Leases in a relational store: what shows that a sweep lives, and who may settle.

A lease ends by the server's clock. So no process waits for longer than that for one that is
frozen, or whose machine is lost; one that died on this machine is seen at once. No lease keeps
messages from being lost or doubled: the rows that a batch locks do.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from duesweep.core.errors import ConfigError, StoreError
from duesweep.core.world import World
from duesweep.drivers.process import is_gone, process_mark, process_name
from duesweep.drivers.statements import Names, Session

LEASE_SECONDS = 10.0
# The holders of this process that could not give their leases back: sessions that were lost.
_over_here: set[str] = set()
# Two renewals may fail before it ends.
RENEWAL_SECONDS = 3.0


def sweep_lease(sweep_id: UUID) -> str:
    """The lease of the driver of a sweep or a command."""
    return f"sweep {sweep_id}"


def settler_lease(source: str) -> str:
    """The lease of a source's only settler."""
    return f"settler {source}"


class Leases:
    """The leases of one driver's session. They are renewed with its looks at the store, and by a
    thread while it waits for something else; the thread opens a session of its own with `connect`.
    """

    def __init__(self, session: Session, connect: Callable[[], Session], world: World) -> None:
        self._session = session
        self._connect = connect
        self._clock = world.clock
        self._holder = world.new_id()
        self._held: set[str] = set()
        # Asked for, and not answered: the server may have given it.
        self._asked: set[str] = set()
        # Which could not be given back.
        self._lost: Sequence[str] = ()
        self._renewed_at = 0.0
        self._is_over, self._is_closed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, name: str) -> bool:
        """Whether this session has the lease now; never waits for another holder."""
        if self._thread is None:
            self._renewed_at = self._clock.seconds()
            self._thread = threading.Thread(
                target=self._keep_renewing, args=(self._session.names,), daemon=True
            )
            self._thread.start()
        self._asked.add(name)
        is_taken = self._take(self._session, name, None)
        if not is_taken:
            other = self.holder(name)
            if other is not None and not is_alive(other):
                is_taken = self._take(self._session, name, other.holder)
        self._asked.discard(name)
        if is_taken:
            self._held.add(name)
        return is_taken

    def give_back(self, name: str) -> None:
        """End a lease of this session; nothing if it has none of this name."""
        if name in self._held:
            self._held.remove(name)
            self._give_back(self._session, name)

    def forget(self, name: str) -> None:
        """Renew a lease no more whose row is gone."""
        self._held.discard(name)

    def holder(self, name: str) -> Any:
        """Who has the lease: `holder`, `process`, `mark` and `taken_at`. None: it is free."""
        rows = self._session.rows("read_lease", name=name)
        return rows[0] if rows else None

    def renew(self) -> None:
        """Renew this session's leases, if it is time."""
        if self._held and self._clock.seconds() >= self._renewed_at + RENEWAL_SECONDS:
            self._renew(self._session)

    def close(self) -> None:
        """End all leases of this session. If it is lost, the thread ends them with its own, as soon
        as it has one: an error here would hide why the session ended.
        """
        self._is_over.set()
        names = (*self._held, *self._asked)
        try:
            for name in names:
                self._held.discard(name)
                self._give_back(self._session, name)
        except StoreError:
            _over_here.add(str(self._holder))
            self._lost = names
        finally:
            self._is_closed.set()

    def _take(self, session: Session, name: str, other: UUID | None) -> bool:
        rows = session.rows(
            "take_lease",
            name=name,
            holder=self._holder,
            other=other or self._holder,
            process=process_name(),
            mark=process_mark(),
            lease_ms=round(LEASE_SECONDS * 1_000),
        )
        return bool(rows)

    def _give_back(self, session: Session, name: str) -> None:
        session.execute("give_lease_back", name=name, holder=self._holder)

    def _keep_renewing(self, names: Names) -> None:
        """Renew while that is late. In the end, give lost leases back."""
        while not self._is_over.wait(RENEWAL_SECONDS / 3):
            if not self._is_late:
                continue
            # The next turn tries again.
            with suppress(StoreError, ConfigError), self._connect() as session:
                while not self._is_over.is_set():
                    if self._is_late:
                        self._renew(session.named(names))
                    self._is_over.wait(RENEWAL_SECONDS / 3)
        self._is_closed.wait()
        ends_at = self._clock.seconds() + LEASE_SECONDS
        # The server may be starting again. Later the leases are over anyway.
        while self._lost and self._clock.seconds() < ends_at:
            with suppress(StoreError, ConfigError), self._connect() as session:
                for name in self._lost:
                    self._give_back(session.named(names), name)
                return
            self._clock.sleep(RENEWAL_SECONDS / 3)

    @property
    def _is_late(self) -> bool:
        """Whether the session's own looks do not renew."""
        age = self._clock.seconds() - self._renewed_at
        return bool(self._held) and age >= 1.5 * RENEWAL_SECONDS

    def _renew(self, session: Session) -> None:
        values = {"holder": self._holder, "lease_ms": round(LEASE_SECONDS * 1_000)}
        if session.execute("renew_leases", **values) < len(self._held):
            # Another session took one, as this process was frozen, and may have given it back.
            for name in tuple(self._held):
                self._take(session, name, None)
        self._renewed_at = self._clock.seconds()


def is_alive(lease: Any) -> bool:
    """Whether there is a lease, and its session is not known to be lost, nor its process gone."""
    if lease.holder is None or str(lease.holder) in _over_here:
        return False
    return not is_gone(lease.mark)
