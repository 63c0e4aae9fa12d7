"""Create, send, receive, peek and purge on each transport: queues of any name, many at once."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, timedelta

import psycopg
import pytest

from duesweep.core.address import TableName
from duesweep.core.errors import (
    ConfigError,
    NotAQueueError,
    QueueNotFoundError,
    UnreadableAddressError,
)
from duesweep.drivers.statements import statement
from duesweep_testing.builders import BODY
from duesweep_transport.tables import TransportSession
from duesweep_transport.values import OutgoingMessage, ReceivedMessage
from support.endpoint import Endpoint
from support.transport import (
    BILLING,
    HOUR,
    ReleasedError,
    Subject,
    address,
    change,
    expire,
    fill,
    held,
    message,
    number_of,
    receive_all,
    rows,
    transport_of,
)
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
    expire(subject, queue.destination, "headers LIKE '%\"1\"%' OR headers LIKE '%\"2\"%'")

    with held(queue) as number:
        assert number == 3
    # Dropped for good, though the message behind it was released.
    assert len(rows(subject, queue.destination)) == 2
    assert list(receive_all(queue)) == [3, 4]


def test_message_expires_by_the_servers_clock(subject: Subject, session: TransportSession) -> None:
    queue = fill(session.queue(BILLING), 0)
    queue.send(message(1, time_to_be_received=timedelta(milliseconds=30)))

    until(lambda: queue.purge(expired_only=True) == 1)

    assert rows(subject, queue.destination) == []


def test_expiry_is_the_servers_time_in_utc_and_the_time_to_be_received(
    subject: Subject, session: TransportSession
) -> None:
    queue = fill(session.queue(BILLING), 0)
    long = timedelta(days=2_000, milliseconds=7)
    queue.send(message(1, time_to_be_received=long))
    queue.send(message(2))

    expiries = [row.expires for row in subject.server.queue_rows(queue.destination)]
    (kept,) = [expires for expires in expiries if expires]

    late = kept.replace(tzinfo=UTC) - subject.server.time() - long
    assert abs(late) < timedelta(minutes=1)


def test_poison_is_a_value_and_loses_nothing(subject: Subject, session: TransportSession) -> None:
    queue, error = fill(session.queue(BILLING), 1), fill(session.queue("error"), 0)
    change(subject, queue.destination, "headers = 'no JSON'")

    with queue.receive() as received:
        assert isinstance(received, ReceivedMessage)
        assert received.is_poison
        error.append(received.id, received.headers_text, received.body)

    assert rows(subject, error.destination) == [("no JSON", BODY)]
    assert rows(subject, queue.destination) == []


def test_empty_headers_are_no_headers(subject: Subject, session: TransportSession) -> None:
    queue = fill(session.queue(BILLING), 1)
    change(subject, queue.destination, "headers = ''")

    with queue.receive() as received:
        assert received is not None
        assert received.headers == {}


def test_received_row_is_skipped_by_others(skipping: Subject, session: TransportSession) -> None:
    queue = fill(session.queue(BILLING), 3)

    with transport_of(skipping).connect() as other, held(queue) as first:
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
    # Once: each call writes the configuration's file, which the other thread may just read.
    transport = transport_of(skipping)

    def receive(_: int) -> list[int | None]:
        with transport.connect() as own:
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


def test_queue_is_created_once_by_all_who_create_it_at_once(subject: Subject) -> None:
    barrier = threading.Barrier(4)
    transport = transport_of(subject)

    def create(name: str) -> None:
        with transport.connect() as session:
            barrier.wait(60)
            session.queue(address(subject, name)).create(readable_body=True)

    for attempt in range(5):
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(create, f"Queue{attempt}") for _ in range(4)]:
                done.result()
        with transport.connect() as session:
            queue = session.queue(address(subject, f"Queue{attempt}"))
            queue.send(message())
            assert list(receive_all(queue)) == [1]


def test_statement_of_postgresql_alone_can_be_run_by_many_at_once(endpoint: Endpoint) -> None:
    # `duesweep setup` runs it too, and prints it for others to run.
    barrier = threading.Barrier(4)

    def create(_: int) -> None:
        with psycopg.connect(endpoint.dsn, autocommit=True) as connection:
            for number in range(30):
                text = statement("postgresql", "create_queue").format(
                    queue=TableName("public", f"Queue{number}")
                )
                barrier.wait(60)
                connection.execute(text.encode())

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(create, range(4)))

    assert len(endpoint.fetch("SELECT FROM pg_class WHERE relname ~ '^Queue[0-9]+$'")) == 30


@pytest.mark.parametrize(("count", "batch_size"), [(0, 10), (1, 10), (3, 10), (3, 2)])
def test_peek_counts_up_to_its_batch(
    session: TransportSession, count: int, batch_size: int
) -> None:
    queue = fill(session.queue(BILLING), count)

    assert queue.peek(batch_size) == min(count, batch_size)
    assert len(list(receive_all(queue))) == count


@pytest.mark.parametrize("batch_size", [1, 2, 3, 1_000])
def test_purge_goes_on_batch_by_batch(session: TransportSession, batch_size: int) -> None:
    queue = fill(session.queue(BILLING), 5)

    assert queue.purge(batch_size=batch_size) == 5
    assert queue.peek() == 0


def test_purge_of_the_expired_leaves_the_others(
    subject: Subject, session: TransportSession
) -> None:
    queue = fill(session.queue(BILLING), 5)
    expire(subject, queue.destination, 'headers LIKE \'%"n":"2"%\' OR headers LIKE \'%"n":"4"%\'')

    assert queue.purge(expired_only=True, batch_size=1) == 2
    assert list(receive_all(queue)) == [1, 3, 5]


@pytest.mark.parametrize("batch_size", [0, -1, 5_000])
def test_purge_in_batches_that_would_lock_the_table_is_refused(
    session: TransportSession, batch_size: int
) -> None:
    with pytest.raises(ConfigError, match="size from 1 to 4999"):
        fill(session.queue(BILLING), 0).purge(batch_size=batch_size)


UGLY_NAMES = (
    "my.tb[e",
    "two words",
    "it's",
    'say "so"',
    "50%",
    "who?",
    "{braces}",
    "naïve☃",
    "x" * 63,
    "a]b",
)


def test_readable_body_can_be_added_to_a_queue_that_is_there(
    subject: Subject, session: TransportSession
) -> None:
    queue = fill(session.queue(BILLING), 0)

    queue.create(readable_body=True)
    queue.create(readable_body=True)
    assert subject.fetch(f"SELECT bodystring FROM {subject.server.quoted(queue.destination)}") == []
    if subject.server.abilities.stand_in:
        pytest.skip("Babelfish reads the bytes in a code page of its own, and when they are stored")
    in_utf_16 = not subject.server.quoted(queue.destination).startswith('"')
    body = BODY.decode().encode("utf-16-le") if in_utf_16 else BODY
    queue.send(OutgoingMessage({"n": "1"}, body))

    (row,) = subject.fetch(f"SELECT bodystring FROM {subject.server.quoted(queue.destination)}")
    assert row[0] == BODY.decode()
    assert list(receive_all(queue)) == [1]


@pytest.mark.parametrize("name", UGLY_NAMES)
def test_queue_of_an_ugly_name_is_like_any_other(
    subject: Subject, session: TransportSession, name: str
) -> None:
    if subject.server.abilities.stand_in and "]" in name:
        pytest.skip("Babelfish cannot read a ] in a name")
    queue = session.queue(address(subject, name))

    queue.create(readable_body=True)
    for number in (1, 2, 3):
        queue.send(message(number))

    with held(queue) as number:
        assert number == 1
    assert queue.peek() == 3
    with queue.receive() as received:
        assert number_of(received) == 1
    assert queue.purge(expired_only=True) == 0
    assert queue.purge() == 2
    subject.execute(f"DROP TABLE {subject.server.quoted(queue.destination)}")


def test_table_that_is_no_queue_is_never_touched(
    subject: Subject, session: TransportSession
) -> None:
    queue = fill(session.queue(BILLING), 1)
    subject.execute(f"ALTER TABLE {subject.server.quoted(queue.destination)} DROP COLUMN headers")

    with transport_of(subject).connect() as other:
        stranger = other.queue(BILLING)
        for attempt in (stranger.check, stranger.purge, stranger.peek, stranger.create):
            with pytest.raises(NotAQueueError, match="lacks headers"):
                attempt()


def test_queue_that_is_not_there_says_so(session: TransportSession) -> None:
    queue = session.queue("Nowhere")

    with pytest.raises(QueueNotFoundError, match="Nowhere"):
        queue.send(message())
    with pytest.raises(QueueNotFoundError, match="Nowhere"), queue.receive():
        pass
    with pytest.raises(UnreadableAddressError):
        session.queue("\0")
