"""The steps of the queue tests."""

from collections.abc import Iterator
from contextlib import contextmanager

from duesweep.core.errors import MessageError
from duesweep.core.message import Message
from duesweep.queues.base import QueueSession
from duesweep.stores.base import TaskSession
from duesweep_testing.builders import delayed_row, message
from duesweep_testing.contract.subjects import ArrivedMessages, BrokerUnderTest

ANSWER_SECONDS = 30.0


@contextmanager
def sessions(subject: BrokerUnderTest) -> Iterator[tuple[TaskSession, QueueSession]]:
    """A store's and a queue's session."""
    with subject.store.open_task() as store, subject.queue.open(store) as queue:
        yield store, queue


def deliver(
    subject: BrokerUnderTest, address: str | None, *messages: Message
) -> dict[str, MessageError]:
    """Deliver in a batch of its own. Returns the refused messages."""
    with sessions(subject) as (store, queue), store.transaction():
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


def messages(count: int) -> list[Message]:
    """Messages with different bodies."""
    return [message(delayed_row(body=str(number).encode())) for number in range(count)]


def expected(*messages: Message) -> ArrivedMessages:
    """Headers and bodies of these messages as they are to be delivered."""
    return [(m.headers_text, m.body) for m in messages]
