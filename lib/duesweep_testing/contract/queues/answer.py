"""Tests of later answers, and of messages that are not due yet."""

import time
from datetime import timedelta

import pytest

from duesweep.core.message import Message
from duesweep.core.world import Clock, StoreClock, micros
from duesweep.queues.base import QueueSession
from duesweep_testing.builders import DUE, delayed_row, message
from duesweep_testing.contract.queues import steps
from duesweep_testing.contract.subjects import BrokerUnderTest

_POLL_SECONDS = 0.01
_ARRIVAL_SECONDS = 120.0


class AnswerContract:
    """A queue reports the result of each delivery once. No message arrives early."""

    def test_without_deliveries_there_is_nothing_to_confirm(self, subject: BrokerUnderTest) -> None:
        with steps.sessions(subject) as (store, queue), store.transaction():
            _assert_nothing_pending(queue)

    def test_confirmed_deliveries_are_reported_once(self, subject: BrokerUnderTest) -> None:
        with steps.sessions(subject) as (store, queue), store.transaction():
            assert steps.deliver_in(queue, "Billing", *steps.messages(3)) == {}

            _assert_nothing_pending(queue)
            queue.commit()

        assert len(subject.arrived("Billing")) == 3

    def test_deliveries_that_were_rolled_back_are_not_reported(
        self, subject: BrokerUnderTest
    ) -> None:
        with steps.sessions(subject) as (store, queue), store.transaction():
            queue.deliver(queue.resolve("Billing"), steps.messages(3))
            queue.rollback()

            _assert_nothing_pending(queue)

    def test_no_destination_defers_for_longer_than_its_queue(
        self, subject: BrokerUnderTest
    ) -> None:
        with steps.sessions(subject) as (_, queue):
            longest = queue.longest_delay(queue.resolve("Billing"))

        assert 0 <= longest <= subject.queue.longest_delay

    def test_message_that_was_deferred_arrives_when_it_is_due(
        self, subject: BrokerUnderTest
    ) -> None:
        if not subject.queue.longest_delay:
            pytest.skip("it cannot defer messages")
        early = _due_in(1)

        with steps.sessions(subject) as (store, queue), store.transaction():
            due_at = time.monotonic() + 1
            clock = StoreClock(micros(DUE), Clock())
            assert queue.defer(queue.resolve("Billing"), [early], clock) == {}
            assert list(queue.confirm(steps.ANSWER_SECONDS).unconfirmed) == []
            queue.commit()

        assert [body for _, body in _first_arrived(subject)] == [early.body]
        assert time.monotonic() >= due_at


def _assert_nothing_pending(queue: QueueSession) -> None:
    answer = queue.confirm(steps.ANSWER_SECONDS)
    assert dict(answer.refused) == {}
    assert list(answer.unconfirmed) == []


def _due_in(seconds: float) -> Message:
    return message(delayed_row(body=b"early", due=DUE + timedelta(seconds=seconds)))


def _first_arrived(subject: BrokerUnderTest) -> list[tuple[str, bytes | None]]:
    deadline = time.monotonic() + _ARRIVAL_SECONDS
    while time.monotonic() < deadline:
        found = subject.arrived("Billing")
        if found:
            return found
        time.sleep(_POLL_SECONDS)
    return []
