"""When the reserved messages of a slice may go."""

import pytest

from duesweep.core.policy import RateLimit, RateLimits
from duesweep.core.world import SettableClock
from duesweep.sweep.waiting import SliceLimits

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


def test_first_limit_that_fits_a_destination_counts() -> None:
    few, many = RateLimit("Bill*", 5), RateLimit("*", 500)

    limits = RateLimits((few, many))

    assert (limits.of("Billing"), limits.of("Shipping")) == (few, many)


def test_slices_together_send_no_more_than_the_limit_in_any_second(clock: SettableClock) -> None:
    slices = [SliceLimits(RateLimits((_LIMIT,)), clock) for _ in range(3)]
    free_at, sent_at = 0.0, list[float]()

    def ask(limit: RateLimit, messages: int) -> float:
        nonlocal free_at
        begins = max(free_at, clock.seconds())
        free_at = begins + messages * limit.seconds_each
        return begins - clock.seconds()

    while clock.seconds() < 3:
        for each in slices:
            each.reserve(_WAITING, ask)
            sent_at += [clock.seconds()] * sum(one.messages for one in each.due(_WAITING))
        clock.sleep(0.001)

    in_each_second = [sum(at <= other < at + 1 for other in sent_at) for at in {*sent_at}]
    assert 0.9 * _LIMIT.per_second < max(in_each_second) <= _LIMIT.per_second
