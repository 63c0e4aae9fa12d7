"""When the reserved messages of a slice may go."""

import pytest

from duesweep.core.clock import SettableClock
from duesweep.core.rate_limits import RateLimit, RateLimits, SliceLimits

_LIMIT = RateLimit("Billing", 500)
_WAITING = {"Billing": 100}


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def limits(clock: SettableClock) -> SliceLimits:
    return SliceLimits(RateLimits((_LIMIT,)), clock)


def test_limit_that_is_free_lets_messages_go_however_long_the_store_took_to_answer(
    clock: SettableClock, limits: SliceLimits
) -> None:
    def ask(_limit: RateLimit, _messages: int) -> float:
        clock.sleep(5)
        return 0.0

    limits.reserve(_WAITING, ask)

    assert [(one.address, one.messages) for one in limits.due(_WAITING)] == [("Billing", 20)]


def test_reservation_that_is_late_is_dropped_but_not_two_that_follow_each_other(
    clock: SettableClock, limits: SliceLimits
) -> None:
    used = []
    for _ in range(6):
        limits.reserve(_WAITING, lambda *_: 0.0)
        clock.sleep(1)
        used.append(len(limits.due(_WAITING)))

    assert used == [0, 1, 0, 1, 0, 1]


def test_reservation_in_time_is_used_after_a_late_one_and_forgives_none(
    clock: SettableClock, limits: SliceLimits
) -> None:
    used = []
    for late in (1.0, 0.0, 1.0):
        limits.reserve(_WAITING, lambda *_: 0.0)
        clock.sleep(late)
        used.append(len(limits.due(_WAITING)))

    assert used == [0, 1, 0]
