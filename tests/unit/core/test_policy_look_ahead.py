"""How far a sweep looks ahead."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.core.policy import LookAhead

floats = st.floats(0, 1e9)


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


@given(floats, floats, floats)
def test_it_is_more_than_the_period_and_never_more_than_the_longest(
    period: float, started: float, now: float
) -> None:
    look_ahead = LookAhead(period, started)

    assert look_ahead.seconds(now) <= look_ahead.longest_seconds
    assert look_ahead.seconds(now) >= period
