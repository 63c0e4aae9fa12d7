"""The pure rules: back-off, giving up, batches, slices."""

import random
from array import array
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.core.policy import MAX_SLICE_ROWS, BatchLimits, Retry, Slicing
from duesweep.errors import QueueNotFoundError

RNG = st.integers().map(random.Random)
retries = st.builds(
    Retry,
    max_attempts=st.integers(1, 100),
    initial_seconds=st.floats(0, 10_000),
    max_seconds=st.floats(0, 31_536_000),
)


class _Longest(random.Random):
    """Shortens nothing."""

    def random(self) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("failures_before", "seconds"),
    [(0, 30), (1, 60), (2, 120), (6, 1920), (7, 3600), (8, 3600), (2_000_000, 3600)],
)
def test_backoff_doubles_with_each_failure_up_to_the_cap(
    failures_before: int, seconds: float
) -> None:
    assert Retry().backoff_seconds(failures_before, _Longest()) == seconds


@given(retries, st.integers(0, 10_000), RNG)
def test_backoff_is_between_three_quarters_of_the_full_one_and_the_full_one(
    retry: Retry, failures_before: int, rng: random.Random
) -> None:
    full = retry.backoff_seconds(failures_before, _Longest())

    assert 0.75 * full <= retry.backoff_seconds(failures_before, rng) <= full <= retry.max_seconds


@given(retries, st.integers(0, 10_000))
def test_full_backoff_never_shrinks_with_another_failure(
    retry: Retry, failures_before: int
) -> None:
    now = retry.backoff_seconds(failures_before, _Longest())

    assert retry.backoff_seconds(failures_before + 1, _Longest()) >= now


def test_messages_that_failed_together_do_not_come_back_together() -> None:
    rng = random.Random(1)

    assert len({Retry().backoff_seconds(0, rng) for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("max_attempts", "failures_before", "is_last"),
    [(1, 0, True), (2, 0, False), (2, 1, True), (5, 3, False), (5, 4, True), (5, 40, True)],
)
def test_failure_is_the_last_when_it_uses_up_the_attempts(
    max_attempts: int, failures_before: int, *, is_last: bool
) -> None:
    assert (
        Retry(max_attempts=max_attempts).is_last(failures_before, QueueNotFoundError("")) is is_last
    )


def test_message_over_the_limit_goes_alone() -> None:
    limits = BatchLimits(rows=10, bytes=100)

    batches = list(limits.batches(list("abcde"), [40, 500, 40, 60, 1]))

    assert batches == [["a"], ["b"], ["c", "d"], ["e"]]


def test_batch_is_full_at_its_number_of_rows() -> None:
    limits = BatchLimits(rows=2, bytes=1_000)

    assert list(limits.batches(list("abcde"), [0] * 5)) == [["a", "b"], ["c", "d"], ["e"]]


def test_nothing_to_do_is_no_batch() -> None:
    assert list(BatchLimits().batches([], array("q"))) == []


@given(
    st.lists(st.integers(0, 300)),
    st.builds(BatchLimits, rows=st.integers(1, 10), bytes=st.integers(1, 200)),
)
def test_batches_hold_every_key_once_in_order_and_keep_the_limits(
    sizes: list[int], limits: BatchLimits
) -> None:
    keys = [str(index) for index in range(len(sizes))]

    batches = [list(batch) for batch in limits.batches(keys, array("q", sizes))]

    assert [key for batch in batches for key in batch] == keys
    for batch in batches:
        assert 1 <= len(batch) <= limits.rows
        assert len(batch) == 1 or sum(sizes[int(key)] for key in batch) <= limits.bytes


@given(
    st.lists(st.integers(0, 300), min_size=1),
    st.builds(BatchLimits, rows=st.integers(1, 10), bytes=st.integers(1, 200)),
)
def test_no_two_neighbouring_batches_would_fit_into_one(
    sizes: list[int], limits: BatchLimits
) -> None:
    keys = [str(index) for index in range(len(sizes))]
    batches = [list(batch) for batch in limits.batches(keys, sizes)]

    for batch, following in pairwise(batches):
        weight = sum(sizes[int(key)] for key in [*batch, following[0]])
        assert len(batch) == limits.rows or weight > limits.bytes


@pytest.mark.parametrize(
    ("found", "cores", "slices"),
    [
        pytest.param(0, 8, 1, id="nothing found"),
        pytest.param(1, 8, 1, id="less than a batch"),
        pytest.param(1_000, 8, 1, id="one batch"),
        pytest.param(1_001, 8, 2, id="a batch and one more"),
        pytest.param(8_000, 8, 8, id="a batch for each core"),
        pytest.param(1_000_000, 8, 8, id="more than enough"),
        pytest.param(10_000_000, 2, 20, id="more than two tasks can hold"),
    ],
)
def test_slices_are_one_a_core_where_there_is_a_batch_for_each(
    found: int, cores: int, slices: int
) -> None:
    assert Slicing(cores, least_rows=1_000).count(found) == slices


@given(st.integers(0, 10**9), st.integers(1, 1_000), st.integers(1, 10_000))
def test_no_slice_is_larger_than_a_task_may_hold(found: int, cores: int, rows: int) -> None:
    count = Slicing(cores, least_rows=rows).count(found)

    assert count >= 1
    assert -(-found // count) <= MAX_SLICE_ROWS
