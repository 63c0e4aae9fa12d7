"""Decides what happens to the messages of a batch that could not be delivered. Without I/O.

The task does the I/O in three steps. It asks the store how many messages the sweep may still
exhaust, and tells `decide`. It sends the error messages, and tells `conclude` which ones arrived.
Then it finishes the batch.
"""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from duesweep.core.fault_headers import make_error_message
from duesweep.core.message import Message
from duesweep.core.outcome import Delivered, Exhausted, Failed, Fault, Outcomes
from duesweep.core.policy import Retry


@dataclass(frozen=True, slots=True)
class Decision:
    """`faulty` are all messages with a fault. `exhausted` are those of them that leave the store.
    `over_limit` counts messages that are out of attempts but stay, since the sweep has exhausted
    as many as it may.
    """

    faulty: Sequence[Fault] = ()
    exhausted: Sequence[Fault] = ()
    over_limit: int = 0


@dataclass(frozen=True, slots=True)
class SentErrors:
    """What became of error messages: the keys of those that `arrived`, and the name of the error
    `queue`. The name is None where the error queue takes nothing.
    """

    queue: str | None = None
    arrived: Collection[str] = frozenset()


def count_exhausted(faulty: Sequence[Fault], retry: Retry) -> int:
    """How many messages are out of attempts."""
    return len(_find_exhausted(faulty, retry))


def decide(faulty: Sequence[Fault], retry: Retry, granted: int) -> Decision:
    """Which messages are exhausted: the first `granted` of those that are out of attempts."""
    found = _find_exhausted(faulty, retry)
    return Decision(faulty, found[:granted], len(found) - granted)


def write_error_messages(decision: Decision, own_queue: str, now: datetime) -> list[Message]:
    """The error messages for the exhausted messages; `now` is the time of their failure."""
    return [make_error_message(m, e, own_queue=own_queue, now=now) for m, e in decision.exhausted]


def conclude(
    delivered: Sequence[Delivered],
    decision: Decision,
    sent: SentErrors | None,
    retry: Retry,
    *,
    rng: random.Random,
) -> Outcomes:
    """The outcomes of a batch. An exhausted message whose error message did not arrive stays in the
    store, as a failure. `sent` None: there is no error queue.
    """
    queue = None if sent is None else sent.queue
    exhausted = tuple(
        Exhausted(message, error, queue)
        for message, error in decision.exhausted
        if sent is None or message.key in sent.arrived
    )
    leaving = {outcome.message.key for outcome in exhausted}
    failed = tuple(
        Failed(message, error, retry.backoff_seconds(message.attempts, rng))
        for message, error in decision.faulty
        if message.key not in leaving
    )
    return Outcomes(tuple(delivered), failed, exhausted, decision.over_limit)


def _find_exhausted(faulty: Sequence[Fault], retry: Retry) -> list[Fault]:
    return [(m, e) for m, e in faulty if retry.is_last(m.attempts, e)]
