"""The store's clock: how long until a message is due, and how late it is."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.core.message import Message
from duesweep.core.world import SettableClock, StoreClock, instant_of, late_ms, micros
from duesweep_testing.builders import message

microseconds = st.integers(-(2**62), 2**62)


def due_at(instant_us: int | None, due_us: int | None = None) -> Message:
    """A claimed message; its Due, where it is not given, is UTC's."""
    due_us = instant_us if due_us is None else due_us
    return message()._replace(due_us=due_us, instant_us=instant_us)


def test_clock_goes_on_from_the_servers_time() -> None:
    clock = SettableClock(500.0)
    store_clock = StoreClock(1_000_000, clock)

    clock.advance(2.5)

    assert store_clock.now_us() == 3_500_000


_HOUR_US = 3_600_000_000


@pytest.mark.parametrize(
    ("instant_us", "due_us", "seconds"),
    [
        *((_HOUR_US + us, None, 1) for us in (1, 999_999, 1_000_000)),
        (_HOUR_US + 1_000_001, None, 2),
        *((due_us, None, 0) for due_us in (_HOUR_US, _HOUR_US - 1, 0, None)),
        # Of writers in another zone.
        (_HOUR_US, -5 * _HOUR_US, 0),
        (2 * _HOUR_US, -4 * _HOUR_US, 3_600),
    ],
)
def test_seconds_until_the_instant_of_a_due_are_rounded_up(
    instant_us: int | None, due_us: int | None, seconds: int
) -> None:
    assert StoreClock(_HOUR_US).seconds_until(due_at(instant_us, due_us)) == seconds


def test_time_that_passes_shortens_the_wait() -> None:
    clock = SettableClock()
    store_clock = StoreClock(0, clock)
    clock.advance(1.5)

    assert store_clock.seconds_until(due_at(5_000_000)) == 4


def test_waits_are_those_of_messages_that_are_not_due() -> None:
    stored = [due_at(us)._replace(key=str(us)) for us in (10_000_000, 9_999_999, 10_000_001)]

    waits = StoreClock(10_000_000).waits([*stored, due_at(None)])

    assert waits == {"10000001": 1}


@given(st.lists(microseconds), microseconds)
def test_waits_are_the_seconds_until_each_message(instants_us: list[int], now_us: int) -> None:
    stored = [due_at(us)._replace(key=str(number)) for number, us in enumerate(instants_us)]
    store_clock = StoreClock(now_us)

    waits = store_clock.waits(stored)

    assert [waits.get(one.key, 0) for one in stored] == [*map(store_clock.seconds_until, stored)]


def test_lateness_is_rounded_down_to_milliseconds() -> None:
    late = [late_ms(due_at(us), 10_000_000) for us in (9_998_001, 10_000_000, 10_000_001, None)]

    assert late == [1, 0, -1, None]


@given(microseconds, microseconds, microseconds)
def test_wait_is_never_too_short_and_less_than_a_second_too_long(
    server_us: int, shift_us: int, due_us: int
) -> None:
    stored = due_at(due_us - shift_us, due_us=due_us)

    wait = StoreClock(server_us).seconds_until(stored)

    left_us = due_us - server_us - shift_us
    assert wait * 1_000_000 >= left_us
    assert wait == 0 or (wait - 1) * 1_000_000 < left_us


@given(
    st.integers(micros(datetime.min.replace(tzinfo=UTC)), micros(datetime.max.replace(tzinfo=UTC)))
)
def test_instants_are_exact_in_microseconds(microseconds: int) -> None:
    instant = instant_of(microseconds)

    assert instant - datetime(1970, 1, 1, tzinfo=UTC) == timedelta(microseconds=microseconds)
    assert micros(instant) == microseconds
