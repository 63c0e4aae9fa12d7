"""What the contracts ask of an author: the store or queue under test, seen from outside."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from duesweep.core.message import Message
from duesweep.queues.base import Queue
from duesweep.stores.base import Store
from duesweep.stores.values import SweepRun
from duesweep.testing.builders import DelayedRow, message
from duesweep.testing.journal import JournalEntry

REFUSED_BODY = b"unwanted"

ArrivedMessages = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Abilities:
    """In what stores may differ.

    `tick` is the smallest step by which the store tells two Dues apart, `first_due` the earliest
    that it holds. A server that only stands in for the real one may not skip what others hold:
    then `skips_locked` is False, tests of it are skipped, and the reason names `stand_in`.
    """

    tick: timedelta = timedelta(microseconds=1)
    first_due: datetime = datetime(1, 1, 2, tzinfo=UTC)
    has_infinite_due: bool = True
    skips_locked: bool = True
    stand_in: str | None = None


class StoreUnderTest(Protocol):
    """An empty store and a queue `Billing` beside it, seen from outside of any session.

    What it reads is what is committed, without waiting for batches that are under way.
    """

    @property
    def abilities(self) -> Abilities:
        """In what it differs."""
        ...

    @property
    def store(self) -> Store:
        """The store."""
        ...

    @property
    def queue(self) -> Queue:
        """The queues beside it."""
        ...

    @property
    def own_queue(self) -> str:
        """The endpoint's name."""
        ...

    @property
    def unreadable(self) -> Sequence[str]:
        """Headers, as `DelayedRow.headers`, that are stored as they are and cannot be read."""
        ...

    def now(self) -> datetime:
        """The moment before which a Due is past, as it is stored."""
        ...

    def server_time(self) -> datetime:
        """The server's time; not what is stored of it, where a time zone shifts that."""
        ...

    def load(self, rows: Iterable[DelayedRow]) -> list[DelayedRow]:
        """Store these rows; the same with the keys and Dues that they have in the store."""
        ...

    def claim_keys(self, rows: Iterable[DelayedRow]) -> list[str]:
        """A claim key for each of these rows, whether it is in the store or not, in their order."""
        ...

    def message(self, row: DelayedRow, attempts: int = 0) -> Message:
        """What a claim of the row has to return."""
        ...

    def stored_headers(self, row: DelayedRow) -> str:
        """The row's headers as the journal keeps those of a message out of attempts."""
        ...

    def waiting(self) -> set[str]:
        """The keys in the store."""
        ...

    def reschedule(self, key: str, due: datetime) -> None:
        """Give a row another Due."""
        ...

    def open_sweep(self) -> SweepRun:
        """Open a sweep of what is due now."""
        ...

    def close_sweep(self, run: SweepRun) -> None:
        """Close it, as one that takes its driver for dead would."""
        ...

    def attempts(self) -> dict[str, int]:
        """The retry counters."""
        ...

    def end_back_off(self) -> None:
        """Let every back-off be over."""
        ...

    def journal(self, run: SweepRun) -> list[JournalEntry]:
        """What the sweep's tasks journalled, in the order of their transactions."""
        ...

    def counters(self, run: SweepRun) -> tuple[int, int]:
        """How many messages the sweep exhausted, and how many were over its limit."""
        ...

    def delivered(self) -> list[str]:
        """The headers of what lies in queue `Billing`."""
        ...


class JsonHeaders:
    """To inherit: what is the same for stores that keep headers as the SQL transports do."""

    unreadable: Sequence[str] = (
        "{",
        "",
        "[]",
        '{"a":1}',
        r'{"a":"\ud800"}',
        "\N{GRINNING FACE}",
    )

    def message(self, row: DelayedRow, attempts: int = 0) -> Message:
        """The row's text, less its forward destination."""
        return message(row, attempts)

    def stored_headers(self, row: DelayedRow) -> str:
        """The row's text."""
        return row.headers


class BrokerUnderTest(Protocol):
    """Empty queues `Billing` and `Sales.Orders`, the endpoint's own, and a store beside them.

    What it reads is what is committed, without waiting for batches that are under way.
    """

    @property
    def queue(self) -> Queue:
        """The queues."""
        ...

    @property
    def store(self) -> Store:
        """A store whose sessions a queue may share."""
        ...

    @property
    def has_own_transaction(self) -> bool:
        """Whether a queue's deliveries are not part of the store's transaction."""
        ...

    @property
    def has_null_bodies(self) -> bool:
        """Whether a body that is none arrives as none; else it is an empty one."""
        ...

    def create(self, address: str) -> None:
        """Create another queue."""
        ...

    def drop(self, address: str) -> None:
        """Remove a queue."""
        ...

    def arrived(self, address: str) -> ArrivedMessages:
        """Headers and bodies of what lies in a queue, in order, as others see it."""
        ...


class QueueUnderTest(BrokerUnderTest, Protocol):
    """The same, where a queue can be made to refuse a message for its body, and to take nothing."""

    def refuse(self, address: str) -> None:
        """Let a queue refuse what has `REFUSED_BODY`."""
        ...

    def locked(self, address: str) -> AbstractContextManager[None]:
        """Let a queue take nothing meanwhile."""
        ...
