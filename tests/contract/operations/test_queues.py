"""Create, send, receive and purge, on each transport."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from duesweep.queues.operations import (
    OutgoingMessage,
    ReceivedMessage,
    TransportSession,
    open_session,
)
from duesweep_testing.builders import BODY
from support.operations.steps import (
    BILLING,
    HOUR,
    ReleasedError,
    fill,
    held,
    message,
    receive_all,
)
from support.operations.subjects import Subject
from support.waiting import until


def test_messages_are_received_in_the_order_in_which_they_were_sent(
    session: TransportSession,
) -> None:
    queue = fill(session.queue(BILLING), 5)

    assert list(receive_all(queue)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "body", [b"", b"\0\xff", BODY * 40_000, None], ids=["empty", "odd", "long", "none"]
)
def test_message_is_received_as_it_was_sent(session: TransportSession, body: bytes | None) -> None:
    queue = session.queue(BILLING)
    queue.create()
    headers = {"b": "☃ 😀 / \\ \" '", "a": None, "": "\0\n"}

    queue.send(OutgoingMessage(headers, body))

    with queue.receive() as received:
        assert received is not None
        assert list(received.headers.items()) == list(headers.items())
        assert received.body == body


def test_message_is_back_in_its_place_where_its_block_raises(session: TransportSession) -> None:
    queue = fill(session.queue(BILLING), 3)

    with pytest.raises(ReleasedError), queue.receive():
        raise ReleasedError

    assert list(receive_all(queue)) == [1, 2, 3]


def test_what_is_sent_with_a_message_leaves_or_stays_with_it(session: TransportSession) -> None:
    queue, other = fill(session.queue(BILLING), 1), fill(session.queue("Other"), 0)

    with held(queue):
        other.send(message(7))
    assert list(receive_all(other)) == []
    with queue.receive():
        other.send(message(8))

    assert list(receive_all(other)) == [8]
    assert list(receive_all(queue)) == []


def test_expired_message_is_dropped_on_the_way_to_the_next(
    subject: Subject, session: TransportSession
) -> None:
    queue = fill(session.queue(BILLING), 0)
    for number in (1, 2, 3, 4):
        queue.send(message(number, time_to_be_received=HOUR))
    subject.expire(queue.destination, "headers LIKE '%\"1\"%' OR headers LIKE '%\"2\"%'")

    with held(queue) as number:
        assert number == 3
    # Dropped for good, though the message behind it was released.
    assert len(subject.rows(queue.destination)) == 2
    assert list(receive_all(queue)) == [3, 4]


def test_message_expires_by_the_servers_clock(subject: Subject, session: TransportSession) -> None:
    queue = fill(session.queue(BILLING), 0)
    queue.send(message(1, time_to_be_received=timedelta(milliseconds=30)))

    until(lambda: queue.purge(expired_only=True) == 1)

    assert subject.rows(queue.destination) == []


def test_expiry_is_the_servers_time_in_utc_and_the_time_to_be_received(
    subject: Subject, session: TransportSession
) -> None:
    queue = fill(session.queue(BILLING), 0)
    long = timedelta(days=2_000, milliseconds=7)
    queue.send(message(1, time_to_be_received=long))
    queue.send(message(2))
    subject.run(
        f"UPDATE {subject.quoted(queue.destination)} SET headers = '{{}}' WHERE expires IS NULL"
    )

    (kept,) = [moment for moment in subject.expiries(queue.destination) if moment]

    past = subject.run(f"SELECT {subject.past}")[0][0]
    assert abs(kept - past - HOUR - long) < timedelta(minutes=1)


def test_poison_is_a_value_and_loses_nothing(subject: Subject, session: TransportSession) -> None:
    queue, error = fill(session.queue(BILLING), 1), fill(session.queue("error"), 0)
    subject.run(f"UPDATE {subject.quoted(queue.destination)} SET headers = 'no JSON'")

    with queue.receive() as received:
        assert isinstance(received, ReceivedMessage)
        assert received.is_poison
        error.append(received.id, received.headers_text, received.body)

    assert subject.rows(error.destination) == [("no JSON", BODY)]
    assert subject.rows(queue.destination) == []


def test_empty_headers_are_no_headers(subject: Subject, session: TransportSession) -> None:
    queue = fill(session.queue(BILLING), 1)
    subject.run(f"UPDATE {subject.quoted(queue.destination)} SET headers = ''")

    with queue.receive() as received:
        assert received is not None
        assert received.headers == {}


def test_received_row_is_skipped_by_others(skipping: Subject, session: TransportSession) -> None:
    queue = fill(session.queue(BILLING), 3)

    with open_session(skipping.transport) as other, held(queue) as first:
        theirs = other.queue(BILLING)
        assert theirs.peek() == 2
        assert list(receive_all(theirs)) == [2, 3]
        assert theirs.peek() == 0
        assert theirs.purge() == 0

    assert first == 1
    assert list(receive_all(queue)) == [1]


def test_two_receivers_take_each_message_once(skipping: Subject, session: TransportSession) -> None:
    fill(session.queue(BILLING), 0)
    with session.transaction():
        for number in range(2_000):
            session.queue(BILLING).send(message(number))

    barrier = threading.Barrier(2)

    def receive(_: int) -> list[int | None]:
        with open_session(skipping.transport) as own:
            # Or one might be done before the other has connected.
            barrier.wait(180)
            return list(receive_all(own.queue(BILLING)))

    with ThreadPoolExecutor(2) as pool:
        ones, others = pool.map(receive, range(2))

    assert sorted([*ones, *others], key=int) == list(range(2_000))
    assert ones
    assert others
    # Each sees them in order.
    assert ones == sorted(ones, key=int)
