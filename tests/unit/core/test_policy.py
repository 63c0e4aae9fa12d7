"""The pure rules: back-off, giving up, batches, slices, how far a sweep looks ahead, time-outs."""

import pickle
import random
from array import array
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.core.errors import QueueNotFoundError
from duesweep.core.policy import (
    MAX_SLICE_ROWS,
    BatchSize,
    LookAhead,
    Retry,
    SessionWaits,
    Slicing,
    Timeouts,
)

RNG = st.integers().map(random.Random)
_SECONDS = st.floats(0, 1e9)
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
def test_backoff_is_at_least_three_quarters_of_the_full_one_which_never_shrinks(
    retry: Retry, failures_before: int, rng: random.Random
) -> None:
    full = retry.backoff_seconds(failures_before, _Longest())

    assert 0.75 * full <= retry.backoff_seconds(failures_before, rng) <= full <= retry.max_seconds
    assert retry.backoff_seconds(failures_before + 1, _Longest()) >= full


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


@pytest.mark.parametrize(
    ("batch_size", "sizes", "batches"),
    [
        pytest.param(
            BatchSize(rows=10, bytes=100),
            [40, 500, 40, 60, 1],
            [["a"], ["b"], ["c", "d"], ["e"]],
            id="a message over the limit goes alone",
        ),
        pytest.param(
            BatchSize(rows=2, bytes=1_000),
            [0] * 5,
            [["a", "b"], ["c", "d"], ["e"]],
            id="full at its number of rows",
        ),
        pytest.param(BatchSize(), array("q"), [], id="nothing to do"),
    ],
)
def test_batches_keep_their_limits(
    batch_size: BatchSize, sizes: Sequence[int], batches: list[list[str]]
) -> None:
    assert list(batch_size.batches(list("abcde"[: len(sizes)]), sizes)) == batches


@pytest.mark.parametrize(
    ("together", "sizes", "batches"),
    [
        ("aabbcc", [1] * 6, ["aa", "bb", "cc"]),
        ("abbbcc", [1] * 6, ["a", "bbb", "cc"]),
        ("aaaaab", [1] * 6, ["aaa", "aab"]),
        ("abbccc", [1, 1, 9, 2, 2, 2], ["a", "bb", "ccc"]),
        ("abbccc", [1, 9, 9, 2, 2, 2], ["a", "b", "b", "ccc"]),
    ],
)
def test_equal_neighbours_get_into_one_batch_if_they_fit_into_one(
    together: str, sizes: Sequence[int], batches: list[str]
) -> None:
    batch_size = BatchSize(rows=3, bytes=10)

    assert list(batch_size.batches(together, sizes, together)) == batches


@given(
    st.lists(st.integers(0, 300)),
    st.builds(BatchSize, rows=st.integers(1, 10), bytes=st.integers(1, 200)),
)
def test_batches_hold_every_key_once_in_order_and_no_two_neighbours_would_fit_into_one(
    sizes: list[int], batch_size: BatchSize
) -> None:
    keys = [str(index) for index in range(len(sizes))]

    batches = [list(batch) for batch in batch_size.batches(keys, array("q", sizes))]

    assert [key for batch in batches for key in batch] == keys
    weigh = lambda some: sum(sizes[int(key)] for key in some)  # noqa: E731 - only here
    for batch in batches:
        assert 1 <= len(batch) <= batch_size.rows
        assert len(batch) == 1 or weigh(batch) <= batch_size.bytes
    for batch, following in pairwise(batches):
        assert len(batch) == batch_size.rows or weigh([*batch, following[0]]) > batch_size.bytes


@pytest.mark.parametrize(
    ("found", "cores", "slices"),
    [
        pytest.param(0, 8, 1, id="nothing found"),
        pytest.param(1, 8, 1, id="less than a batch"),
        pytest.param(1_000, 8, 1, id="one batch"),
        pytest.param(1_001, 8, 2, id="a batch and one more"),
        pytest.param(8_000, 8, 8, id="a batch for each core"),
        pytest.param(1_000_000, 8, 8, id="more than enough"),
        pytest.param(10_000_000, 2, 40, id="more than two tasks can hold"),
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


def test_without_a_period_nothing_is_looked_for_ahead() -> None:
    assert LookAhead().seconds(1e9) == LookAhead().longest_seconds == 0


@pytest.mark.parametrize(
    ("starting", "seconds"),
    [(0, 65), (2, 65), (10, 80), (30, 120), (31, 120), (86_400, 120), (-5, 65)],
)
def test_margin_is_twice_the_start_between_five_seconds_and_the_period(
    starting: float, seconds: float
) -> None:
    assert LookAhead(60, started=1_000).seconds(1_000 + starting) == seconds


@given(_SECONDS, _SECONDS, _SECONDS)
def test_look_ahead_is_more_than_the_period_and_never_more_than_the_longest(
    period: float, started: float, now: float
) -> None:
    look_ahead = LookAhead(period, started)

    assert look_ahead.seconds(now) <= look_ahead.longest_seconds
    assert look_ahead.seconds(now) >= period


def test_by_default_a_silent_service_ends_the_sweep_within_a_minute() -> None:
    timeouts = Timeouts()

    assert timeouts.silence_seconds == 60
    assert (timeouts.connect_seconds, timeouts.batch_seconds, timeouts.driver_seconds) == (
        10,
        20,
        40,
    )
    assert timeouts.task == SessionWaits(10, answer_seconds=20, lock_seconds=2, idle_seconds=120)
    assert timeouts.driver == SessionWaits(
        10, answer_seconds=40, lock_seconds=20, idle_seconds=10.0
    )
    assert timeouts.handler == SessionWaits(10, answer_seconds=40, lock_seconds=20, idle_seconds=0)


@pytest.mark.parametrize("seconds", [6, 7.5, 30, 60, 600, 3600])
def test_waits_that_follow_each_other_stay_within_the_setting(seconds: float) -> None:
    timeouts = Timeouts(seconds)

    # A task waits in vain, tries a new session, and the driver finds its own one dead.
    assert timeouts.batch_seconds + 2 * timeouts.connect_seconds <= seconds
    # Spark reads in vain, and then tries three times to connect.
    assert timeouts.read_seconds(0) + 3 * timeouts.connect_seconds <= seconds + 2
    # The driver's session falls silent, and another is tried.
    assert timeouts.driver_seconds + timeouts.connect_seconds <= seconds
    assert 2 <= timeouts.connect_seconds <= 10


@pytest.mark.parametrize("seconds", [6, 7.5, 30, 60, 600, 3600])
def test_a_server_that_is_only_slow_says_so_before_its_client_gives_up(seconds: float) -> None:
    for waits in (Timeouts(seconds).task, Timeouts(seconds).driver):
        assert 0 < waits.lock_seconds < waits.statement_seconds < waits.answer_seconds


def test_a_plan_may_take_longer_the_more_is_due() -> None:
    timeouts = Timeouts(60)

    assert timeouts.plan_seconds(0) == 40
    assert timeouts.plan_seconds(3_000_000) == 340


def test_time_outs_travel_to_tasks() -> None:
    assert pickle.loads(pickle.dumps(Timeouts(9))) == Timeouts(9)
