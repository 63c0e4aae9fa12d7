"""Time-outs: one setting, and what each wait may take of it."""

import pickle

import pytest

from duesweep.core.policy import Limits, Timeouts


def test_by_default_a_silent_service_ends_the_sweep_within_a_minute() -> None:
    timeouts = Timeouts()

    assert timeouts.silence_seconds == 60
    assert (timeouts.connect_seconds, timeouts.batch_seconds, timeouts.driver_seconds) == (
        10,
        20,
        40,
    )
    assert timeouts.task == Limits(10, answer_seconds=20, lock_seconds=2, idle_seconds=120)
    assert timeouts.driver == Limits(10, answer_seconds=40, lock_seconds=20, idle_seconds=600)
    assert timeouts.handler == Limits(10, answer_seconds=40, lock_seconds=20, idle_seconds=0)


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
    for limits in (Timeouts(seconds).task, Timeouts(seconds).driver):
        assert 0 < limits.lock_seconds < limits.statement_seconds < limits.answer_seconds


def test_a_plan_may_take_longer_the_more_is_due() -> None:
    timeouts = Timeouts(60)

    assert timeouts.plan_seconds(0) == 40
    assert timeouts.plan_seconds(3_000_000) == 340


def test_time_outs_travel_to_tasks() -> None:
    assert pickle.loads(pickle.dumps(Timeouts(9))) == Timeouts(9)
