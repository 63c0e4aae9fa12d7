"""The contract of a queue session, kept by every queue."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from contract.queue_subjects import (
    REFUSED_BODY,
    QueueUnderTest,
)
from contract.transactions import rolled_back
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from duesweep.errors import ConfigError, DestinationError, MessageError, QueueNotFoundError
from duesweep.message import Message
from duesweep.queues.base import QueueSession
from duesweep.stores.base import TaskSession
from duesweep.testing.builders import ENDPOINT, delayed_row, message


@contextmanager
def _sessions(subject: QueueUnderTest) -> Iterator[tuple[TaskSession, QueueSession]]:
    with subject.store.open_task() as store, subject.queue.open(store) as queue:
        yield store, queue


def _deliver(
    subject: QueueUnderTest, address: str | None, *messages: Message
) -> dict[str, MessageError]:
    """Deliver in a batch of its own; what was refused."""
    with _sessions(subject) as (store, queue), store.transaction():
        refused = queue.deliver(queue.resolve(address), messages)
        queue.commit()
    return refused


def _messages(count: int) -> list[Message]:
    return [message(delayed_row(body=str(number).encode())) for number in range(count)]


def _letters(*messages: Message) -> list[tuple[str, bytes | None]]:
    return [(m.headers_text, m.body) for m in messages]


# --- resolve -------------------------------------------------------------------------------------


def test_destination_without_a_queue_is_the_messages_fault(subject: QueueUnderTest) -> None:
    with _sessions(subject) as (_, queue), pytest.raises(QueueNotFoundError, match="Nowhere"):
        queue.resolve("Nowhere")


def test_no_destination_is_the_endpoints_own_queue(subject: QueueUnderTest) -> None:
    (letter,) = _messages(1)

    assert _deliver(subject, None, letter) == {}

    assert subject.letters(ENDPOINT) == _letters(letter)
    assert subject.letters("Billing") == []


def test_queue_made_while_the_session_is_open_is_found(subject: QueueUnderTest) -> None:
    with _sessions(subject) as (_, queue):
        with pytest.raises(QueueNotFoundError):
            queue.resolve("Shipping")
        subject.create("Shipping")

        assert "Shipping" in str(queue.resolve("Shipping"))


def test_same_destination_is_one_value(subject: QueueUnderTest) -> None:
    with _sessions(subject) as (_, queue):
        assert queue.resolve("Billing") == queue.resolve("Billing")
        assert len({queue.resolve("Billing"), queue.resolve("Billing"), queue.resolve(None)}) == 2


def test_check_refuses_an_error_queue_that_is_none_as_a_wrong_setting(
    subject: QueueUnderTest,
) -> None:
    subject.queue.check(None)
    subject.queue.check("Billing")
    with pytest.raises(ConfigError, match="Nowhere"):
        subject.queue.check("Nowhere")


def test_check_refuses_a_service_of_their_own_without_the_endpoints_queue(
    subject: QueueUnderTest,
) -> None:
    subject.drop(ENDPOINT)

    if subject.has_own_transaction:
        with pytest.raises(ConfigError, match=ENDPOINT):
            subject.queue.check(None)
    else:
        subject.queue.check(None)


# --- deliver -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 1_000])
def test_messages_are_delivered_in_order_and_as_they_are(
    subject: QueueUnderTest, count: int
) -> None:
    letters = _messages(count)

    assert _deliver(subject, "Billing", *letters) == {}

    assert subject.letters("Billing") == _letters(*letters)


@pytest.mark.parametrize(
    "body",
    [None, b"", b"\0", bytes(range(256)) * 3, b"x" * 256_001],
    ids=["none", "empty", "one NUL", "every byte", "longer than a chunk"],
)
def test_any_body_is_delivered_as_it_is(subject: QueueUnderTest, body: bytes | None) -> None:
    letters = [message(delayed_row(body=body)) for _ in range(3)]

    assert _deliver(subject, "Billing", *letters) == {}

    assert subject.letters("Billing") == _letters(*letters)


def test_any_headers_are_delivered_to_the_letter(subject: QueueUnderTest) -> None:
    odd = {"Grüße": '\N{GRINNING FACE} " \\ \t /', "Nullable": None, "": "", "\x01": "\0"}
    letter = message(delayed_row(more=odd))

    _deliver(subject, "Billing", letter)

    assert subject.letters("Billing") == _letters(letter)


def test_several_groups_are_delivered_in_one_batch(subject: QueueUnderTest) -> None:
    subject.create("Shipping")
    letters = _messages(4)

    with _sessions(subject) as (store, queue), store.transaction():
        queue.deliver(queue.resolve("Billing"), letters[:2])
        queue.deliver(queue.resolve("Shipping"), letters[2:3])
        queue.deliver(queue.resolve("Billing"), letters[3:])
        queue.commit()

    assert subject.letters("Billing") == _letters(*letters[:2], letters[3])
    assert subject.letters("Shipping") == _letters(letters[2])


def test_batches_follow_each_other_in_one_session(subject: QueueUnderTest) -> None:
    letters = _messages(3)

    with _sessions(subject) as (store, queue):
        for letter in letters:
            with store.transaction():
                queue.deliver(queue.resolve("Billing"), [letter])
                queue.commit()

    assert subject.letters("Billing") == _letters(*letters)


# --- what is refused -----------------------------------------------------------------------------


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.booleans(), min_size=1, max_size=12))
@example([True])
@example([True] * 5)
@example([False] * 6 + [True])
@example([True] + [False] * 6)
def test_refused_messages_cost_only_themselves(subject: QueueUnderTest, wanted: list[bool]) -> None:
    address = f"Queue{len(wanted)}-{sum(1 << i for i, w in enumerate(wanted) if w)}"
    subject.create(address)
    subject.refuse(address)
    before = len(subject.letters(address))
    letters = [message(delayed_row(body=b"fine" if w else REFUSED_BODY)) for w in wanted]

    refused = _deliver(subject, address, *letters)

    taken = [letter for letter, w in zip(letters, wanted, strict=True) if w]
    assert subject.letters(address)[before:] == _letters(*taken)
    assert set(refused) == {letter.key for letter in letters if letter not in taken}
    assert all(isinstance(error, MessageError) for error in refused.values())


def test_what_is_refused_says_why(subject: QueueUnderTest) -> None:
    subject.refuse("Billing")
    letter = message(delayed_row(body=REFUSED_BODY))

    (error,) = _deliver(subject, "Billing", letter).values()

    assert str(error)


# --- what takes nothing now ----------------------------------------------------------------------


def test_locked_queue_takes_nothing_and_the_others_go_on(subject: QueueUnderTest) -> None:
    subject.create("Shipping")
    letters = _messages(3)

    with _sessions(subject) as (store, queue), store.transaction():
        queue.deliver(queue.resolve("Shipping"), letters[:1])
        with subject.locked("Billing"), pytest.raises(DestinationError, match="Billing"):
            queue.deliver(queue.resolve("Billing"), letters[1:])
        queue.deliver(queue.resolve("Shipping"), letters[2:])
        queue.commit()

    assert subject.letters("Billing") == []
    assert subject.letters("Shipping") == _letters(letters[0], letters[2])


def test_queue_that_was_locked_takes_messages_again(subject: QueueUnderTest) -> None:
    (letter,) = _messages(1)
    with _sessions(subject) as (store, queue):
        with subject.locked("Billing"), pytest.raises(DestinationError), store.transaction():
            queue.deliver(queue.resolve("Billing"), [letter])

        with store.transaction():
            queue.deliver(queue.resolve("Billing"), [letter])
            queue.commit()

    assert subject.letters("Billing") == _letters(letter)


# --- transactions --------------------------------------------------------------------------------


def test_nothing_is_to_be_seen_of_a_batch_before_its_end(subject: QueueUnderTest) -> None:
    with _sessions(subject) as (store, queue), store.transaction():
        queue.deliver(queue.resolve("Billing"), _messages(2))

        assert subject.letters("Billing") == []


def test_batch_that_fails_before_the_queues_commit_has_delivered_nothing(
    subject: QueueUnderTest,
) -> None:
    with _sessions(subject) as (store, queue), rolled_back(store):
        queue.deliver(queue.resolve("Billing"), _messages(2))

    assert subject.letters("Billing") == []


def test_batch_that_fails_after_the_queues_commit_was_delivered_where_the_queue_has_its_own(
    subject: QueueUnderTest,
) -> None:
    letters = _messages(2)

    with _sessions(subject) as (store, queue), rolled_back(store):
        queue.deliver(queue.resolve("Billing"), letters)
        queue.commit()

    durable = letters if subject.has_own_transaction else []
    assert subject.letters("Billing") == _letters(*durable)


def test_commit_without_deliveries_does_nothing(subject: QueueUnderTest) -> None:
    with _sessions(subject) as (store, queue):
        for _ in range(2):
            with store.transaction():
                queue.commit()

    assert subject.letters("Billing") == []
