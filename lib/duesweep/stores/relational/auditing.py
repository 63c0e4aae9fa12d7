"""What a relational store tells the audit."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from duesweep.stores.auditing import UnsettledWork
from duesweep.stores.relational.locks import LockingSession, sweep_lock
from duesweep.stores.relational.summary import aware

KEYS_PER_PAGE = 20_000


@dataclass(frozen=True, slots=True)
class RelationalAudit:
    """On a driver's session. `pages` opens the pages of `stored_keys`; within `patient`, statements
    about all messages may take their time.
    """

    session: LockingSession
    source: str
    pages: Callable[[], AbstractContextManager[Iterator[list[Any]]]]
    patient: Callable[[], AbstractContextManager[None]]

    @contextmanager
    def keys(self) -> Iterator[Iterator[Sequence[str]]]:
        """The keys of all stored messages, in pages."""
        with self.pages() as pages:
            yield ([row.message_key for row in page] for page in pages)

    def gone_counters(self, most: int) -> Sequence[str]:
        """The keys of counters whose messages are not stored."""
        with self.patient():
            rows = self.session.statements.rows("gone_counters", source=self.source, most=most)
        return [row.message_key for row in rows]

    def unsettled_work(self) -> Sequence[UnsettledWork]:
        """The source's sweeps and commands that are not settled, oldest first."""
        rows = self.session.statements.rows("unsettled_work", source=self.source)
        return [self._unsettled(row) for row in rows]

    def orphaned_journal(self) -> Sequence[UUID]:
        """Whose rows in the journal nobody settles."""
        with self.patient():
            rows = self.session.statements.rows("orphaned_journal")
        return [UUID(str(row.sweep_id)) for row in rows]

    def _unsettled(self, row: Any) -> UnsettledWork:
        sweep_id, locks = UUID(str(row.sweep_id)), self.session.locks
        is_alive = not locks.try_lock(sweep_lock(sweep_id))
        if not is_alive:
            locks.unlock(sweep_lock(sweep_id))
        return UnsettledWork(sweep_id, aware(row.started_at), is_alive)
