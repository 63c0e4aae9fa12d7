"""How long a watcher waits."""

from datetime import UTC, datetime, timedelta

import pytest

from duesweep.core.watching import REST_SECONDS, wait_after, wait_for_next

_NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("due_in", "seconds"),
    [(0.7, 0.7), (5, 2), (0.01, 0.1), (-60, 0.1)],
    ids=["soon", "after the longest wait", "at once", "due already, but held back"],
)
def test_waits_for_the_next_message_within_bounds(due_in: float, seconds: float) -> None:
    assert wait_for_next(_NOW + timedelta(seconds=due_in), _NOW, 2) == pytest.approx(seconds)


def test_without_a_next_message_waits_as_long_as_it_may() -> None:
    assert wait_for_next(None, None, 2) == 2


def test_waits_twice_as_long_each_time_up_to_a_limit() -> None:
    waits = [wait_after(times, 2) for times in range(5)]

    assert waits == [REST_SECONDS, 0.6, 1.2, 2, 2]
    assert wait_after(10_000) == 30
