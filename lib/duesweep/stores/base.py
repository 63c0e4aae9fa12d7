"""The contract of a store, and the values that cross it.

A store is a value that travels to tasks; it opens two kinds of session. A *task session* claims a
batch of messages and finishes it, on one connection, in one transaction. A *driver session* says
what is due and keeps the sweeps: it opens and closes them, and hands what they did to settle.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from duesweep.core.account import SliceEnd
from duesweep.core.message import Message
from duesweep.core.outcome import BatchResult
from duesweep.core.policy import Slicing
from duesweep.errors import Problem
from duesweep.stores.journal import JdbcSource, Journal
from duesweep.stores.values import (
    Claim,
    Excluded,
    Horizon,
    NewMessage,
    Slices,
    SweepRun,
    TransactionMode,
)


class TaskSession(Protocol):
    """One task's session: the batch contract. Not thread-safe."""

    def transaction(self) -> AbstractContextManager[None]:
        """The transaction in which a batch is claimed and finished; nested, a savepoint."""
        ...

    def claim(self, run: SweepRun, claim_keys: Sequence[str]) -> Claim:
        """Lock what the claim keys lead to, at most one message a claim key, where it is still
        there, due by the horizon and eligible; skip what others hold, wait for no row. Raises
        `SweepClosedError` when the sweep was closed meanwhile, and `SweepStoppedError` when it is
        to stop (see `StopsSweeps`). Without claim keys, that is all it does.

        A claim key of a store that finds messages by their Due may lead to another one of that Due.
        """
        ...

    def claim_key(self, message: Message) -> str:
        """The claim key by which a claimed message that is released is found again."""
        ...

    def exclude(self, messages: Sequence[Excluded]) -> None:
        """Do not claim these again in this session, because their destination takes nothing now."""
        ...

    def include(self, messages: Sequence[Excluded]) -> None:
        """Undo `exclude` for these: they are about to be claimed again."""
        ...

    def grant_exhausted(self, run: SweepRun, wanted: int, limit: int) -> int:
        """How many of `wanted` more messages the sweep may exhaust. Serialised per sweep: other
        slices wait until this transaction, in which `finish` counts them, has ended.
        """
        ...

    def finish(
        self, run: SweepRun, slice_number: int, outcomes: BatchResult, server_us: int
    ) -> None:
        """Remove what left, count what failed, journal both; part of the claim's transaction."""
        ...

    def end_slice(self, run: SweepRun, slice_number: int, end: SliceEnd) -> None:
        """Journal the end of a slice, its account and whether it is complete."""
        ...


class MessageSession(Protocol):
    """One message at a time, as in the MSMQ transport's `IDelayedMessageStore`; the batch contract
    does the same for many. It keeps no account. Not thread-safe. Within a `transaction`, fetching
    locks the message, and a failure brings back what was removed.
    """

    def transaction(self) -> AbstractContextManager[None]:
        """The transaction of one message; nested, a savepoint."""
        ...

    def store(self, message: NewMessage) -> str:
        """Store a message until it is due; its key."""
        ...

    def fetch_next_due(self) -> Message | None:
        """Lock and return the eligible message that has been due for the longest, by the server's
        clock; None if there is none. Skips what others hold.
        """
        ...

    def remove(self, message: Message) -> bool:
        """Remove a message that was fetched; False if it is gone already."""
        ...

    def raise_failure_count(self, message: Message) -> bool:
        """Count a failure for a message; False if it is gone already."""
        ...

    def next_due(self) -> datetime | None:
        """When the next message is or was due, in UTC; None if none is stored."""
        ...


class DriverSession(Journal, Protocol):
    """The driver's session: what is due, and the life of its sweep.

    It holds the sweep's liveness lock: when the session ends, the sweep counts as dead.
    """

    def __enter__(self) -> "DriverSession": ...

    def __exit__(self, *error: object) -> None: ...

    def check(self) -> None:
        """Raise `ConfigError` unless tables, their shapes and this role's rights are as needed."""
        ...

    def notices(self) -> Sequence[Problem]:
        """Problems that somebody should look at, although sweeps work. Cheap."""
        ...

    def has_work(self, ahead: timedelta) -> bool:
        """Whether anything is unsettled, or due by `ahead` from now and not in back-off. Cheap."""
        ...

    def horizon(self) -> Horizon:
        """What is due now, by the transport's own predicate in its writers' time zone."""
        ...

    def open_sweep(
        self, horizon: Horizon, *, engine: str | None = None, prunes: bool = True
    ) -> SweepRun:
        """Open a sweep and, with `prunes`, drop counters of messages that are gone. `engine` is
        noted for the ledger.
        """
        ...

    def plan(self, run: SweepRun, slicing: Slicing) -> Slices:
        """Cut what is eligible into slices of equal size, and note them."""
        ...

    def claim_keys(self, plan: Slices, number: int) -> Iterable[Any]:
        """The rows of one slice of `plan.claim_keys_query`, read by this session."""
        ...

    def jdbc(self) -> JdbcSource:
        """How Spark reads `plan.claim_keys_query`."""
        ...

    def count_pending(self, horizon: Horizon, most: int | None = None) -> int:
        """How many messages are eligible; counts up to `most`, which is cheap."""
        ...

    def count_stored(self, since: datetime | None) -> int:
        """How many messages the store holds, whatever their Due; with `since`, only those stored
        with a Due from then on.
        """
        ...

    def sweeps_under_way(self) -> Sequence[UUID]:
        """The source's sweeps that are not closed, and whose driver lives."""
        ...

    def progress(self, sweep_id: UUID) -> tuple[int, int]:
        """Batches and messages done so far by an open sweep."""
        ...


class Store(Protocol):
    """Where delayed messages wait. A value: plain, frozen, picklable; no secrets in its repr."""

    @property
    def source(self) -> str:
        """The stable name under which ledger and journal know the store."""
        ...

    @property
    def own_queue(self) -> str:
        """The address of the endpoint's own input queue."""
        ...

    def initialise(self, endpoint: str, mode: TransactionMode) -> None:
        """Be ready to serve an endpoint; called before anything but `set_up_infrastructure`, if the
        store `HasInfrastructure`.

        Raises `ConfigError` for a mode that the store cannot honour.
        """
        ...

    def open_task(self) -> AbstractContextManager[TaskSession]:
        """A session for one slice."""
        ...

    def open_driver(self) -> DriverSession:
        """A session for the driver."""
        ...

    def open_messages(self) -> AbstractContextManager[MessageSession]:
        """A session for one message at a time."""
        ...
