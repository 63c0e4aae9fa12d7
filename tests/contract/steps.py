"""The steps of the store tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from contract.store_subjects import StoreUnderTest

from duesweep.errors import QueueNotFoundError
from duesweep.message import Message
from duesweep.outcome import Delivered, Failed, Outcomes
from duesweep.stores.base import TaskSession
from duesweep.stores.values import Claim, SweepRun
from duesweep.testing.builders import DelayedRow, delayed_row

MINUTE = timedelta(minutes=1)
# How long somebody is watched who must wait: less than a session's lock time-out.
WHILE_SECONDS = 0.3


def row(subject: StoreUnderTest, destination: str | None = "Billing", **values: Any) -> DelayedRow:
    """A row that came due a minute ago."""
    return delayed_row(destination, **{"due": subject.now() - MINUTE} | values)


def load(subject: StoreUnderTest, *rows: DelayedRow) -> SweepRun:
    """Store rows and open a sweep of them."""
    subject.load(rows)
    return subject.open_sweep()


@contextmanager
def batch(subject: StoreUnderTest) -> Iterator[TaskSession]:
    """A session with a transaction under way."""
    with subject.store.open_task() as session, session.transaction():
        yield session


def claimable(subject: StoreUnderTest, run: SweepRun, *rows: DelayedRow) -> list[str]:
    """The keys that a session of its own can claim now."""
    with batch(subject) as session:
        return keys(session.claim(run, [row.key for row in rows]))


def keys(claim: Claim) -> list[str]:
    """The keys of what was claimed."""
    return [message.key for message in claim.messages]


def delivered(*messages: Message) -> Outcomes:
    """All of them are delivered."""
    return Outcomes(delivered=tuple(Delivered(message, "Billing") for message in messages))


def failed(*messages: Message, retry_seconds: float = 3600) -> Outcomes:
    """All of them fail."""
    error = QueueNotFoundError("There is no queue")
    return Outcomes(failed=tuple(Failed(message, error, retry_seconds) for message in messages))


def fail(subject: StoreUnderTest, run: SweepRun, row: DelayedRow) -> None:
    """A batch in which the message fails."""
    with batch(subject) as session:
        claim = session.claim(run, [row.key])
        session.finish(run, 0, failed(*claim.messages), claim.server_us)
