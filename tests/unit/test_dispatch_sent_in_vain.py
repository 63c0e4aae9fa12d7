"""A store that refuses the end of batches whose messages a queue has, and cannot give back."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from duesweep.core.errors import MessageError, StoreError, TransactionLostError
from duesweep.core.message import Message
from duesweep.core.policy import BatchSize, BreakerTimes
from duesweep.queues.base import Destination
from duesweep_testing.builders import delayed_row
from duesweep_testing.memory import MemoryStore
from duesweep_testing.memory_queue import MemoryQueue, MemoryQueueSession
from duesweep_testing.memory_sessions import MemoryTaskSession
from support.dispatch_world import World

_FULL = StoreError("No space left on device", transient=True)
_ROWS = 5


class Sent:
    """Counts deliveries of each message, and refuses ends of batches."""

    def __init__(
        self, patch: pytest.MonkeyPatch, refuse: Callable[[int], Exception | None]
    ) -> None:
        self.times: Counter[str] = Counter()
        self.refused = self.finished = 0
        deliver, finish = MemoryQueueSession.deliver, MemoryTaskSession.finish

        def counted(
            session: MemoryQueueSession, destination: Destination, messages: Sequence[Message]
        ) -> dict[str, MessageError]:
            self.times.update(message.key for message in messages)
            return deliver(session, destination, messages)

        def refused(session: MemoryTaskSession, *arguments: Any) -> None:
            if (error := refuse(self.refused)) is not None:
                self.refused += 1
                raise error
            self.finished += 1
            finish(session, *arguments)

        patch.setattr(MemoryQueueSession, "deliver", counted)
        patch.setattr(MemoryTaskSession, "finish", refused)


def _world(*, own_transaction: bool = True) -> World:
    rows = [delayed_row("Billing") for _ in range(_ROWS)]
    queue = MemoryQueue("Billing", own_transaction=own_transaction)
    return World(MemoryStore(rows), queue, job={"breaker": BreakerTimes(trigger_seconds=30)})


def test_each_message_is_sent_once_however_long_the_store_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, sent = _world(), Sent(monkeypatch, lambda _: _FULL)

    report = world.rounds()

    assert (report.claimed, report.outcome) == (0, "incomplete")
    assert sent.refused > 5
    assert set(sent.times.values()) == {1}
    assert len(world.store.rows) == _ROWS


def test_messages_are_sent_again_once_the_store_takes_their_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = _world()
    sent = Sent(monkeypatch, lambda refused: _FULL if refused < 4 else None)

    report = world.rounds()

    assert report.claimed == _ROWS
    assert set(sent.times.values()) == {2}
    assert len(world.queue.arrived["Billing"]) == _ROWS
    assert world.store.rows == {}


def test_batch_whose_transaction_was_lost_is_tried_before_it_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = _world()
    lost = TransactionLostError("a deadlock")
    sent = Sent(monkeypatch, lambda refused: lost if refused < 3 else None)

    assert world.rounds().claimed == _ROWS
    assert set(sent.times.values()) == {2}


def test_only_the_first_batch_after_an_outage_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    world = _world()
    world.job["batch_size"] = BatchSize(rows=1)
    sent = Sent(monkeypatch, lambda refused: _FULL if refused < 2 else None)

    assert world.rounds().claimed == _ROWS
    assert sorted(sent.times.values()) == [1] * (_ROWS - 1) + [2]
    # Each batch once, the first one also on trial.
    assert sent.finished == _ROWS + 1


def test_queue_in_the_same_transaction_needs_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    world = _world(own_transaction=False)
    world.job["breaker"] = BreakerTimes(trigger_seconds=5)
    sent = Sent(monkeypatch, lambda refused: _FULL if refused < 3 else None)

    assert world.rounds().claimed == _ROWS
    assert set(sent.times.values()) == {4}
