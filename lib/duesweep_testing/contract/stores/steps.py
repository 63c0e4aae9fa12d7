"""The steps of the store tests."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from duesweep.core.errors import QueueNotFoundError
from duesweep.core.message import Delivered, Failed, Message, Outcome
from duesweep.stores.base import DriverSession, OperatorDriver, Operators
from duesweep.stores.sweeps import SweepRun
from duesweep.stores.task import NOBODY, Claim, LeftAlone, TaskSession
from duesweep_testing.builders import DelayedRow, delayed_row
from duesweep_testing.contract.subjects import StoreUnderTest
from duesweep_testing.journal import BatchEntry
from duesweep_testing.sweeps import open_sweep

MINUTE = timedelta(minutes=1)
# How long a test checks that a session waits: less than its lock time-out.
WHILE_SECONDS = 0.3

_APART = timedelta(milliseconds=10)
_numbers = itertools.count(1)


def row(subject: StoreUnderTest, destination: str | None = "Billing", **values: Any) -> DelayedRow:
    """A row that was due a minute ago or earlier. No other row has its Due, unless `values` do."""
    return delayed_row(destination, **{"due": _own_due(subject)} | values)


def poison(subject: StoreUnderTest, text: str | None = None, **values: Any) -> DelayedRow:
    """A row whose headers cannot be read. `text` None: any such headers."""
    headers = subject.unreadable[0] if text is None else text
    return DelayedRow(headers=headers, **{"due": _own_due(subject)} | values)


def load(subject: StoreUnderTest, *rows: DelayedRow) -> tuple[SweepRun, list[DelayedRow]]:
    """Store rows and open a sweep. Returns the sweep and the rows as they are stored."""
    stored = subject.load(rows)
    return open_sweep(subject.store), stored


@contextmanager
def batch(subject: StoreUnderTest) -> Iterator[TaskSession]:
    """A session with an open transaction."""
    with subject.store.open_task() as session, session.transaction():
        yield session


def claim(
    subject: StoreUnderTest,
    session: TaskSession,
    run: SweepRun,
    *rows: DelayedRow,
    left_alone: LeftAlone = NOBODY,
) -> Claim:
    """Claim the messages in these rows."""
    return session.claim(run, subject.claim_keys(rows), left_alone)


def left_alone(session: TaskSession, messages: Sequence[Message]) -> LeftAlone:
    """Claimed messages as later claims take them that leave them alone."""
    found: dict[str, set[str]] = {}
    for message in messages:
        found.setdefault(session.claim_key(message), set()).add(message.key)
    return found


def claimable(subject: StoreUnderTest, run: SweepRun, *rows: DelayedRow) -> list[str]:
    """The keys that a new session can claim now."""
    with batch(subject) as session:
        return keys(claim(subject, session, run, *rows))


def keys(claim: Claim) -> list[str]:
    """The keys of the claimed messages."""
    return [message.key for message in claim.messages]


def delivered(*messages: Message) -> list[Outcome]:
    """All messages are delivered."""
    return [Delivered(message, "Billing") for message in messages]


def failed(*messages: Message, retry_seconds: float = 3600) -> list[Outcome]:
    """All messages fail."""
    error = QueueNotFoundError("There is no queue")
    return [Failed(message, error, retry_seconds) for message in messages]


def fail(subject: StoreUnderTest, run: SweepRun, row: DelayedRow) -> None:
    """Run a batch in which the message fails."""
    with batch(subject) as session:
        claimed = claim(subject, session, run, row)
        session.finish(run, 0, failed(*claimed.messages), claimed.server_us)


def batches(subject: StoreUnderTest, run: SweepRun) -> list[BatchEntry]:
    """The journal's entries of the sweep's batches."""
    return [entry for entry in subject.journal(run) if isinstance(entry, BatchEntry)]


def is_alive(driver: DriverSession, sweep_id: UUID) -> bool:
    """Whether a session lives for an unsettled sweep."""
    return any(one.is_alive for one in driver.journal.unsettled() if one.sweep_id == sweep_id)


def operators(subject: StoreUnderTest) -> Operators:
    """The store's operations for people; skips the test without them."""
    found = subject.store.operators()
    if found is None:
        pytest.skip("the store does nothing for people")
    return found


def operator(subject: StoreUnderTest) -> AbstractContextManager[OperatorDriver]:
    """A session for people; skips the test if the store has none."""
    return operators(subject).open_driver()


def need_skipping(subject: StoreUnderTest) -> None:
    """Skip the test if claims do not skip locked rows."""
    if not subject.abilities.skips_locked:
        pytest.skip(f"{subject.abilities.stand_in} stands in, and does not skip locked rows")


def _own_due(subject: StoreUnderTest) -> datetime:
    # Counted from the full hour: the time between two calls must not make their Dues equal.
    hour = subject.now().replace(minute=0, second=0, microsecond=0)
    return hour - MINUTE - next(_numbers) * max(_APART, 2 * subject.abilities.tick)
