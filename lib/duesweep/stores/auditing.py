"""What a store may do for `duesweep audit`: tell what it holds, to be compared with the ledger."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import NamedTuple, Protocol, runtime_checkable
from uuid import UUID

from duesweep.stores.journal import Journal
from duesweep.stores.steering import LooksAtMessages


class UnsettledWork(NamedTuple):
    """A sweep or command that the journal still has. `is_alive`: its driver runs, or somebody is
    settling it.
    """

    sweep_id: UUID
    started_at: datetime
    is_alive: bool


class AuditedStore(Protocol):
    """What is to be compared with the ledger. It waits for no lock of others. What others change
    meanwhile may be missing, or be there still.
    """

    def keys(self) -> AbstractContextManager[Iterator[Sequence[str]]]:
        """The keys of all stored messages, in pages; no order is promised."""
        ...

    def gone_counters(self, most: int) -> Sequence[str]:
        """The keys of retry counters whose messages are not stored, up to so many."""
        ...

    def unsettled_work(self) -> Sequence[UnsettledWork]:
        """The source's sweeps and commands that are not settled, oldest first."""
        ...

    def orphaned_journal(self) -> Sequence[UUID]:
        """Sweeps and commands, of any source, of which the journal has rows that nobody settles,
        because their own row is gone.
        """
        ...


@runtime_checkable
class CanBeAudited(LooksAtMessages, Journal, Protocol):
    """A driver's session that `duesweep audit` can compare with the ledger."""

    def audited(self) -> AuditedStore:
        """What the store holds, read on this session."""
        ...
