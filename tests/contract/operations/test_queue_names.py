"""Queues of any name, readable bodies, and tables that are no queues."""

import pytest

from duesweep.core.errors import NotAQueueError, QueueNotFoundError, UnreadableAddressError
from duesweep.queues.operations import OutgoingMessage, TransportSession, open_session
from duesweep_testing.builders import BODY
from support.operations.steps import BILLING, fill, held, message, number_of, receive_all
from support.operations.subjects import Subject

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
    assert subject.run(f"SELECT bodystring FROM {subject.quoted(queue.destination)}") == []
    if subject.stand_in:
        pytest.skip("Babelfish reads the bytes in a code page of its own, and when they are stored")
    in_utf_16 = not subject.quoted(queue.destination).startswith('"')
    body = BODY.decode().encode("utf-16-le") if in_utf_16 else BODY
    queue.send(OutgoingMessage({"n": "1"}, body))

    (row,) = subject.run(f"SELECT bodystring FROM {subject.quoted(queue.destination)}")
    assert row[0] == BODY.decode()
    assert list(receive_all(queue)) == [1]


@pytest.mark.parametrize("name", UGLY_NAMES)
def test_queue_of_an_ugly_name_is_like_any_other(
    subject: Subject, session: TransportSession, name: str
) -> None:
    if subject.stand_in and "]" in name:
        pytest.skip("Babelfish cannot read a ] in a name")
    queue = session.queue(subject.address(name))

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
    subject.drop(queue.destination)


def test_table_that_is_no_queue_is_never_touched(
    subject: Subject, session: TransportSession
) -> None:
    queue = fill(session.queue(BILLING), 1)
    subject.run(f"ALTER TABLE {subject.quoted(queue.destination)} DROP COLUMN headers")

    with open_session(subject.transport) as other:
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
