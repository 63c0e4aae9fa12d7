"""Peek and purge, on each transport."""

import pytest

from duesweep.core.errors import ConfigError
from duesweep.queues.operations import TransportSession
from support.operations.steps import BILLING, fill, receive_all
from support.operations.subjects import Subject


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
    subject.expire(queue.destination, 'headers LIKE \'%"n":"2"%\' OR headers LIKE \'%"n":"4"%\'')

    assert queue.purge(expired_only=True, batch_size=1) == 2
    assert list(receive_all(queue)) == [1, 3, 5]


@pytest.mark.parametrize("batch_size", [0, -1, 5_000])
def test_purge_in_batches_that_would_lock_the_table_is_refused(
    session: TransportSession, batch_size: int
) -> None:
    with pytest.raises(ConfigError, match="size from 1 to 4999"):
        fill(session.queue(BILLING), 0).purge(batch_size=batch_size)
