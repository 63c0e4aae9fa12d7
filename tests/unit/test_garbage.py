"""The garbage collector's thresholds."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from duesweep.garbage import collect_new, collect_rarely


@pytest.fixture(autouse=True)
def _own_thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize(("before", "within"), [(700, 100_000), (500_000, 500_000), (0, 0)])
def test_collector_runs_rarely_in_the_block_only(before: int, within: int) -> None:
    gc.set_threshold(before, 10, 10)

    with collect_rarely():
        assert gc.get_threshold() == (within, 10, 10)

    assert gc.get_threshold() == (before, 10, 10)


class _Body:
    """What a circle holds."""


def test_circle_of_a_batch_is_collected_when_the_batch_is_over() -> None:
    body = _Body()
    seen = weakref.ref(body)
    circle: list[object] = [body]
    circle.append(circle)

    with collect_rarely():
        del circle, body
        assert seen() is not None
        collect_new()

        assert seen() is None
