"""What authors have to implement for the contracts: access to the store or queue under test."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from duesweep.core.message import Message
from duesweep.queues.base import Queue
from duesweep.stores.base import Store
from duesweep.stores.sweeps import SweepRun
from duesweep_testing.builders import DelayedRow, message
from duesweep_testing.journal import ChangeEntry, JournalEntry

REFUSED_BODY = b"unwanted"

ArrivedMessages = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Abilities:
    """The differences between stores.

    `tick` is the smallest difference between two Dues, `first_due` the earliest Due that the store
    can hold. If a server stands in for the real one and does not skip locked rows,
    `skips_locked` is False. Then such tests are skipped, and the reason names `stand_in`.
    """

    tick: timedelta = timedelta(microseconds=1)
    first_due: datetime = datetime(1, 1, 2, tzinfo=UTC)
    has_infinite_due: bool = True
    skips_locked: bool = True
    stand_in: str | None = None


class StoreUnderTest(Protocol):
    """An empty store and a queue `Billing` next to it, accessed without the store's sessions.

    All methods read committed data, and do not wait for open batches.
    """

    @property
    def abilities(self) -> Abilities:
        """The store's abilities."""

    @property
    def store(self) -> Store:
        """The store."""

    @property
    def queue(self) -> Queue:
        """The queues next to it."""

    @property
    def own_queue(self) -> str:
        """The endpoint's name."""

    @property
    def unreadable(self) -> Sequence[str]:
        """Texts for `DelayedRow.headers` that cannot be read; the store keeps them unchanged."""

    def now(self) -> datetime:
        """The time now, as a Due would be stored."""

    def server_time(self) -> datetime:
        """The server's time as an instant, without the shift of a stored Due's time zone."""

    def load(self, rows: Iterable[DelayedRow]) -> list[DelayedRow]:
        """Store these rows. Returns them with the keys and Dues that they have in the store."""

    def claim_keys(self, rows: Iterable[DelayedRow]) -> list[str]:
        """A claim key for each row, in order, also for rows that are not in the store."""

    def message(self, row: DelayedRow, attempts: int = 0) -> Message:
        """The message that a claim of the row has to return."""

    def stored_headers(self, row: DelayedRow) -> str:
        """The row's headers as the journal stores them for an exhausted message."""

    def waiting(self) -> set[str]:
        """The keys in the store."""

    def reschedule(self, key: str, due: datetime) -> None:
        """Give a row another Due."""

    def attempts(self) -> dict[str, int]:
        """The retry counters."""

    def end_back_off(self) -> None:
        """End all back-offs."""

    def journal(self, run: SweepRun) -> list[JournalEntry]:
        """The journal entries of the sweep's tasks, in the order of their transactions."""

    def counters(self, run: SweepRun) -> tuple[int, int]:
        """How many messages the sweep exhausted, and how many were over its limit."""

    def changes(self, run: SweepRun) -> list[ChangeEntry]:
        """The journal's entries of an operator's command, in order."""

    def delivered(self) -> list[str]:
        """The headers of the messages in queue `Billing`."""


class JsonHeaders:
    """Base class for subjects whose store keeps headers as the SQL transports do."""

    unreadable: Sequence[str] = (
        "{",
        "",
        "[]",
        '{"a":1}',
        r'{"a":"\ud800"}',
        "\N{GRINNING FACE}",
    )

    def message(self, row: DelayedRow, attempts: int = 0) -> Message:
        """The message of the row, without its forward destination."""
        return message(row, attempts)

    def stored_headers(self, row: DelayedRow) -> str:
        """The row's text."""
        return row.headers


class BrokerUnderTest(Protocol):
    """Empty queues `Billing` and `Sales.Orders` (the endpoint's own), and a store next to them.

    All methods read committed data, and do not wait for open batches.
    """

    @property
    def queue(self) -> Queue:
        """The queues."""

    @property
    def store(self) -> Store:
        """A store whose sessions a queue may share."""

    @property
    def has_own_transaction(self) -> bool:
        """Whether a queue's deliveries are not part of the store's transaction."""

    @property
    def has_null_bodies(self) -> bool:
        """Whether a body of None arrives as None; else it arrives empty."""

    def create(self, address: str) -> None:
        """Create another queue."""

    def drop(self, address: str) -> None:
        """Remove a queue."""

    def arrived(self, address: str) -> ArrivedMessages:
        """Headers and bodies of the committed messages in a queue, in order."""


class QueueUnderTest(BrokerUnderTest, Protocol):
    """The same, with queues that can refuse a message for its body, and be locked."""

    def refuse(self, address: str) -> None:
        """Let a queue refuse messages with `REFUSED_BODY`."""

    def locked(self, address: str) -> AbstractContextManager[None]:
        """Let a queue be unavailable during the block."""
