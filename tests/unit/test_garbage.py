"""The garbage collector's thresholds."""

import gc
from collections.abc import Iterator

import pytest

from duesweep.garbage import collect_rarely


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
