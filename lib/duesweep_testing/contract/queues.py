"""The contract of a queue."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import product

import pytest

from duesweep.core.errors import (
    ConfigError,
    DestinationError,
    MessageError,
    QueueNotFoundError,
    TransactionLostError,
)
from duesweep.core.message import Message
from duesweep.core.world import Clock, StoreClock, micros
from duesweep.queues.base import QueueSession
from duesweep.stores.task import TaskSession
from duesweep_testing.builders import DUE, ENDPOINT, delayed_row, message
from duesweep_testing.contract.subjects import (
    REFUSED_BODY,
    ArrivedMessages,
    BrokerUnderTest,
    QueueUnderTest,
)
from duesweep_testing.sweeps import roll_back

ANSWER_SECONDS = 30.0


@contextmanager
def opened(subject: BrokerUnderTest) -> Iterator[tuple[TaskSession, QueueSession]]:
    """A store's and a queue's session."""
    with subject.store.open_task() as store, subject.queue.open(store) as queue:
        yield store, queue


def deliver(
    subject: BrokerUnderTest, address: str | None, *messages: Message
) -> dict[str, MessageError]:
    """Deliver in a batch of its own. Returns the refused messages."""
    with opened(subject) as (store, queue), store.transaction():
        refused = deliver_in(queue, address, *messages)
        queue.commit()
    return refused


def deliver_in(
    queue: QueueSession, address: str | None, *messages: Message
) -> dict[str, MessageError]:
    """Deliver in the current batch, and wait for the answers. Returns the refused messages."""
    refused = queue.deliver(queue.resolve(address), messages)
    answer = queue.confirm(ANSWER_SECONDS)
    assert list(answer.unconfirmed) == []
    return {**refused, **answer.refused}


def numbered(count: int) -> list[Message]:
    """Messages with different bodies."""
    return [message(delayed_row(body=str(number).encode())) for number in range(count)]


def expected(*messages: Message) -> ArrivedMessages:
    """Headers and bodies of these messages as they are to be delivered."""
    return [(m.headers_text, m.body) for m in messages]


class ResolveContract:
    """Destinations that exist, and destinations that do not."""

    def test_destination_without_a_queue_is_the_messages_fault(
        self, subject: BrokerUnderTest
    ) -> None:
        with (
            opened(subject) as (_, queue),
            pytest.raises(QueueNotFoundError, match="Nowhere"),
        ):
            queue.resolve("Nowhere")

    def test_no_destination_is_the_endpoints_own_queue(self, subject: BrokerUnderTest) -> None:
        (one,) = numbered(1)

        assert deliver(subject, None, one) == {}

        assert subject.arrived(ENDPOINT) == expected(one)
        assert subject.arrived("Billing") == []

    def test_queue_made_while_the_session_is_open_is_found(self, subject: BrokerUnderTest) -> None:
        with opened(subject) as (_, queue):
            with pytest.raises(QueueNotFoundError):
                queue.resolve("Shipping")
            subject.create("Shipping")

            assert "Shipping" in str(queue.resolve("Shipping"))

    def test_same_destination_is_one_value(self, subject: BrokerUnderTest) -> None:
        with opened(subject) as (_, queue):
            billing, again, own = map(queue.resolve, ("Billing", "Billing", None))

        assert billing == again
        assert len({billing, again, own}) == 2

    def test_check_refuses_an_error_queue_that_is_none_as_a_wrong_setting(
        self, subject: BrokerUnderTest
    ) -> None:
        with subject.store.open_driver() as store:
            subject.queue.check(None, store)
            subject.queue.check("Billing", store)
            with pytest.raises(ConfigError, match="Nowhere"):
                subject.queue.check("Nowhere", store)

    def test_check_refuses_a_service_of_their_own_without_the_endpoints_queue(
        self, subject: BrokerUnderTest
    ) -> None:
        subject.drop(ENDPOINT)

        with subject.store.open_driver() as store:
            if subject.has_own_transaction:
                with pytest.raises(ConfigError, match=ENDPOINT):
                    subject.queue.check(None, store)
            else:
                subject.queue.check(None, store)


class DeliverContract:
    """Messages arrive in order and byte for byte."""

    @pytest.mark.parametrize("count", [1, 2, 1_000])
    def test_messages_are_delivered_in_order_and_as_they_are(
        self, subject: BrokerUnderTest, count: int
    ) -> None:
        sent = numbered(count)

        assert deliver(subject, "Billing", *sent) == {}

        assert subject.arrived("Billing") == expected(*sent)

    @pytest.mark.parametrize(
        "body",
        [None, b"", b"\0", bytes(range(256)) * 3, b"x" * 256_001],
        ids=["none", "empty", "one NUL", "every byte", "longer than a chunk"],
    )
    def test_any_body_is_delivered_as_it_is(
        self, subject: BrokerUnderTest, body: bytes | None
    ) -> None:
        if body is None and not subject.has_null_bodies:
            pytest.skip("a body that is none is an empty one there")
        sent = [message(delayed_row(body=body)) for _ in range(3)]

        assert deliver(subject, "Billing", *sent) == {}

        assert subject.arrived("Billing") == expected(*sent)

    def test_bodies_of_every_kind_are_delivered_in_one_group(
        self, subject: BrokerUnderTest
    ) -> None:
        none = None if subject.has_null_bodies else b""
        bodies = [b"short", none, b"", b"x" * 256_001, none, bytes(range(256))]
        sent = [message(delayed_row(body=body)) for body in bodies]

        assert deliver(subject, "Billing", *sent) == {}

        assert subject.arrived("Billing") == expected(*sent)

    def test_any_headers_are_delivered_byte_for_byte(self, subject: BrokerUnderTest) -> None:
        odd = {"Grüße": '\N{GRINNING FACE} " \\ \t /', "Nullable": None, "": "", "\x01": "\0"}
        one = message(delayed_row(more=odd))

        deliver(subject, "Billing", one)

        assert subject.arrived("Billing") == expected(one)

    def test_several_groups_are_delivered_in_one_batch(self, subject: BrokerUnderTest) -> None:
        subject.create("Shipping")
        sent = numbered(4)

        with opened(subject) as (store, queue), store.transaction():
            queue.deliver(queue.resolve("Billing"), sent[:2])
            queue.deliver(queue.resolve("Shipping"), sent[2:3])
            deliver_in(queue, "Billing", *sent[3:])
            queue.commit()

        assert subject.arrived("Billing") == expected(*sent[:2], sent[3])
        assert subject.arrived("Shipping") == expected(sent[2])


class BatchContract:
    """Every batch is delivered. A batch without deliveries does nothing."""

    def test_batches_follow_each_other_in_one_session(self, subject: BrokerUnderTest) -> None:
        sent = numbered(3)

        with opened(subject) as (store, queue):
            for one in sent:
                with store.transaction():
                    deliver_in(queue, "Billing", one)
                    queue.commit()

        assert subject.arrived("Billing") == expected(*sent)

    def test_commit_without_deliveries_does_nothing(self, subject: BrokerUnderTest) -> None:
        with opened(subject) as (store, queue):
            for _ in range(2):
                with store.transaction():
                    queue.commit()

        assert subject.arrived("Billing") == []

    def test_rollback_without_deliveries_does_nothing(self, subject: BrokerUnderTest) -> None:
        (one,) = numbered(1)

        with opened(subject) as (store, queue):
            for _ in range(2):
                queue.rollback()
            with store.transaction():
                deliver_in(queue, "Billing", one)
                queue.commit()
            queue.rollback()

        assert subject.arrived("Billing") == expected(one)


_POLL_SECONDS = 0.01
_ARRIVAL_SECONDS = 120.0


class AnswerContract:
    """A queue reports the result of each delivery once. No message arrives early."""

    def test_without_deliveries_there_is_nothing_to_confirm(self, subject: BrokerUnderTest) -> None:
        with opened(subject) as (store, queue), store.transaction():
            _assert_nothing_pending(queue)

    def test_confirmed_deliveries_are_reported_once(self, subject: BrokerUnderTest) -> None:
        with opened(subject) as (store, queue), store.transaction():
            assert deliver_in(queue, "Billing", *numbered(3)) == {}

            _assert_nothing_pending(queue)
            queue.commit()

        assert len(subject.arrived("Billing")) == 3

    def test_deliveries_that_were_rolled_back_are_not_reported(
        self, subject: BrokerUnderTest
    ) -> None:
        with opened(subject) as (store, queue), store.transaction():
            queue.deliver(queue.resolve("Billing"), numbered(3))
            queue.rollback()

            _assert_nothing_pending(queue)

    def test_no_destination_defers_for_longer_than_its_queue(
        self, subject: BrokerUnderTest
    ) -> None:
        with opened(subject) as (_, queue):
            longest = queue.longest_delay(queue.resolve("Billing"))

        assert 0 <= longest <= subject.queue.longest_delay

    def test_message_that_was_deferred_arrives_when_it_is_due(
        self, subject: BrokerUnderTest
    ) -> None:
        if not subject.queue.longest_delay:
            pytest.skip("it cannot defer messages")
        early = _due_in(1)

        with opened(subject) as (store, queue), store.transaction():
            due_at = time.monotonic() + 1
            clock = StoreClock(micros(DUE), Clock())
            assert queue.defer(queue.resolve("Billing"), [early], clock) == {}
            assert list(queue.confirm(ANSWER_SECONDS).unconfirmed) == []
            queue.commit()

        assert [body for _, body in _first_arrived(subject)] == [early.body]
        assert time.monotonic() >= due_at


def _assert_nothing_pending(queue: QueueSession) -> None:
    answer = queue.confirm(ANSWER_SECONDS)
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


class RefuseContract:
    """A message arrives, even if others are refused."""

    def test_refused_messages_cost_only_themselves(self, subject: QueueUnderTest) -> None:
        subject.refuse("Billing")
        arrived = 0
        with opened(subject) as (store, queue):
            for wanted in _patterns():
                sent = [_message_to_send(number, is_wanted=w) for number, w in enumerate(wanted)]

                with store.transaction():
                    refused = deliver_in(queue, "Billing", *sent)
                    queue.commit()

                taken = [one for one, w in zip(sent, wanted, strict=True) if w]
                assert subject.arrived("Billing")[arrived:] == expected(*taken)
                assert set(refused) == {one.key for one in sent if one not in taken}
                assert all(isinstance(error, MessageError) for error in refused.values())
                assert all(str(error) for error in refused.values()), "it does not say why"
                arrived += len(taken)

    def test_locked_queue_takes_nothing_and_the_others_go_on(self, subject: QueueUnderTest) -> None:
        subject.create("Shipping")
        sent = numbered(3)

        with opened(subject) as (store, queue):
            try:
                with store.transaction():
                    queue.deliver(queue.resolve("Shipping"), sent[:1])
                    with (
                        subject.locked("Billing"),
                        pytest.raises(DestinationError, match="Billing"),
                    ):
                        queue.deliver(queue.resolve("Billing"), sent[1:])
                    queue.deliver(queue.resolve("Shipping"), sent[2:])
                    queue.commit()
            except TransactionLostError as error:
                # Allowed too: the batch is rolled back, and repeated without this destination.
                if not error.destination_is_at_fault:
                    raise
                queue.rollback()
                with store.transaction():
                    queue.deliver(queue.resolve("Shipping"), [sent[0], sent[2]])
                    queue.commit()

        assert subject.arrived("Billing") == []
        assert subject.arrived("Shipping") == expected(sent[0], sent[2])

    def test_queue_that_was_locked_takes_messages_again(self, subject: QueueUnderTest) -> None:
        (one,) = numbered(1)
        blocked = pytest.raises((DestinationError, TransactionLostError))
        with opened(subject) as (store, queue):
            with subject.locked("Billing"), blocked as failure, store.transaction():
                queue.deliver(queue.resolve("Billing"), [one])
            if isinstance(failure.value, TransactionLostError):
                queue.rollback()

            with store.transaction():
                queue.deliver(queue.resolve("Billing"), [one])
                queue.commit()

        assert subject.arrived("Billing") == expected(one)


def _patterns() -> Iterator[Sequence[bool]]:
    """Which messages of a group are accepted: all short patterns, and some long ones."""
    for length in range(1, 6):
        yield from product([True, False], repeat=length)
    yield from ([False] * 6 + [True], [True] + [False] * 6, [True, False] * 6)
    yield [number not in {0, 500, 501, 999} for number in range(1_000)]


def _message_to_send(number: int, *, is_wanted: bool) -> Message:
    return message(delayed_row(body=str(number).encode() if is_wanted else REFUSED_BODY))


class TransactionContract:
    """A batch is delivered as a whole or not at all, with the store's transaction or before it."""

    def test_batch_is_not_visible_before_its_end(self, subject: QueueUnderTest) -> None:
        with opened(subject) as (store, queue), store.transaction():
            queue.deliver(queue.resolve("Billing"), numbered(2))

            assert subject.arrived("Billing") == []

    def test_batch_that_fails_before_the_queues_commit_has_delivered_nothing(
        self, subject: QueueUnderTest
    ) -> None:
        with opened(subject) as (store, queue), roll_back(store):
            queue.deliver(queue.resolve("Billing"), numbered(2))

        assert subject.arrived("Billing") == []

    def test_batch_that_fails_after_the_commit_of_a_queues_own_transaction_is_delivered(
        self, subject: QueueUnderTest
    ) -> None:
        sent = numbered(2)

        with opened(subject) as (store, queue), roll_back(store):
            deliver_in(queue, "Billing", *sent)
            queue.commit()

        durable = sent if subject.has_own_transaction else []
        assert subject.arrived("Billing") == expected(*durable)

    def test_rollback_forgets_what_was_delivered_and_the_next_batch_is_a_new_one(
        self, subject: QueueUnderTest
    ) -> None:
        subject.create("Shipping")
        before, lost, lost_elsewhere, after = numbered(4)

        with opened(subject) as (store, queue):
            with store.transaction():
                deliver_in(queue, "Billing", before)
                queue.commit()
            with roll_back(store):
                queue.deliver(queue.resolve("Billing"), [lost])
                queue.deliver(queue.resolve("Shipping"), [lost_elsewhere])
            queue.rollback()
            with store.transaction():
                deliver_in(queue, "Billing", after)
                queue.commit()

        assert subject.arrived("Billing") == expected(before, after)
        assert subject.arrived("Shipping") == []


class BrokerContract(ResolveContract, DeliverContract, BatchContract, AnswerContract):
    """The contract of a queue that cannot roll back, and refuses no message for its contents. The
    fixture `subject` is a `BrokerUnderTest`.
    """


class QueueContract(BrokerContract, RefuseContract, TransactionContract):
    """The whole contract of a queue. The fixture `subject` is a `QueueUnderTest`."""
