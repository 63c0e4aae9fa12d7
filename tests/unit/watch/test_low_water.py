"""A watcher's looks pass over messages that it has looked at."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duesweep.core.policy import Pause
from duesweep.core.world import SettableClock
from duesweep.stores.due import Horizon, Work
from duesweep.sweep.low_water import LowWater

_START = datetime(2026, 1, 1, tzinfo=UTC)


class _Due:
    """Takes `seconds` for a look at all messages, and notes where each look began."""

    def __init__(self, clock: SettableClock, seconds: float) -> None:
        self._clock, self.seconds = clock, seconds
        self.seconds_from_mark = 0.0
        self.paused: Sequence[Pause] = ()
        self.work: Work | None = None
        self.began_at: list[float | None] = []

    def pauses(self) -> Sequence[Pause]:
        return self.paused

    def find_work(self, horizon: Horizon) -> Work | None:
        since = horizon.since
        self.began_at.append(None if since is None else (since - _START).total_seconds())
        self._clock.advance(self.seconds if since is None else self.seconds_from_mark)
        return self.work


def _looks(clock: SettableClock, due: _Due, marks: LowWater, *at: float) -> list[float | None]:
    """The beginnings of looks at these times; None: the first message."""
    due.began_at.clear()
    for seconds in at:
        clock.advance(seconds - clock.seconds())
        now = _START + timedelta(seconds=seconds)
        marks.find_work(_as_due(due), Horizon(now, now))
    return [*due.began_at]


def _as_due(due: _Due) -> Any:
    return due


def test_looks_begin_where_the_last_one_ended_and_all_is_looked_at_now_and_then() -> None:
    clock = SettableClock()
    due, marks = _Due(clock, 0.3), LowWater(clock)

    found = _looks(clock, due, marks, 0, 1, 2, 5.9, 6.4, 7, 11.8)

    assert found == [None, None, 1, 2, None, 6.4, None]


def test_looks_that_find_work_are_compared_with_their_like_alone() -> None:
    """They send fewer statements, and each costs a round trip."""
    clock = SettableClock()
    due, marks = _Due(clock, 0.1), LowWater(clock)
    due.seconds_from_mark = 0.1
    assert _looks(clock, due, marks, 0, 1, 2, 7, 8) == [None, None, 1, None, None]

    due.work, due.seconds, due.seconds_from_mark = Work(), 0.03, 0.03
    assert _looks(clock, due, marks, 9, 10) == [None, None]
    due.work, due.seconds, due.seconds_from_mark = None, 0.1, 0.1
    assert _looks(clock, due, marks, 11, 12, 13) == [None, None, None]


def test_looks_that_take_long_and_find_work_begin_at_it() -> None:
    """As under a steady load, where hardly a look finds nothing."""
    clock = SettableClock()
    due, marks = _Due(clock, 0.02), LowWater(clock)
    due.work = Work(_START)

    assert _looks(clock, due, marks, 1, 2, 2.1, 2.3, 2.5) == [None, None, 0, 0, None]


def test_single_look_from_the_mark_that_took_long_does_not_end_its_use() -> None:
    clock = SettableClock()
    due, marks = _Due(clock, 0.25), LowWater(clock)
    assert _looks(clock, due, marks, 0, 1, 2, 3) == [None, None, 1, 2]

    due.seconds_from_mark = 0.3
    assert _looks(clock, due, marks, 6) == [3]
    due.seconds_from_mark = 0.0
    assert _looks(clock, due, marks, 7, 8, 9) == [None, 7, 8]


def test_look_that_finds_work_first_is_compared_with_looks_that_find_nothing() -> None:
    """Else the first ones on a distant database would count as longer by their round trips."""
    clock = SettableClock()
    due, marks = _Due(clock, 0.25), LowWater(clock)
    due.seconds_from_mark = 0.25
    assert _looks(clock, due, marks, 0, 1, 2) == [None, None, 1]

    due.work = Work(_START)
    assert _looks(clock, due, marks, 8, 9, 10) == [None] * 3


def test_single_look_that_took_long_is_no_reason_to_look_at_all_less_often() -> None:
    clock = SettableClock()
    due, marks = _Due(clock, 0.0), LowWater(clock)
    assert _looks(clock, due, marks, 0, 1) == [None, None]

    due.seconds = 5.0
    assert _looks(clock, due, marks, 2) == [None]
    due.seconds = 0.0
    assert _looks(clock, due, marks, 7.1, 7.2) == [None, None]


def test_each_look_is_at_all_messages_where_that_takes_no_longer() -> None:
    clock = SettableClock()
    due, marks = _Due(clock, 0.3), LowWater(clock)
    due.seconds_from_mark = 0.3

    assert _looks(clock, due, marks, 0, 1, 2, 7, 8, 9) == [None, None, 1, None, None, None]


def test_each_look_is_at_all_messages_where_that_takes_no_time() -> None:
    clock = SettableClock()
    due, marks = _Due(clock, 0.001), LowWater(clock)

    assert _looks(clock, due, marks, 0, 0.1, 0.2, 0.3) == [None] * 4


def test_all_messages_are_looked_at_after_five_seconds_however_long_that_takes() -> None:
    clock = SettableClock()
    due, marks = _Due(clock, 5.0), LowWater(clock)

    assert _looks(clock, due, marks, 0, 6, 15, 17) == [None, None, 6, None]


def test_all_messages_are_looked_at_when_a_pause_begins_or_ends() -> None:
    clock = SettableClock()
    due, marks = _Due(clock, 1.0), LowWater(clock)
    assert _looks(clock, due, marks, 0, 2, 4) == [None, None, 2]

    due.paused = [Pause("Billing", _START, None, "someone", "a test")]
    assert _looks(clock, due, marks, 5, 7) == [None, 5]
    due.paused = []
    assert _looks(clock, due, marks, 8, 10) == [None, 8]


def test_mark_stays_before_messages_that_were_not_delivered() -> None:
    clock = SettableClock()
    due, marks = _Due(clock, 1.0), LowWater(clock)
    assert _looks(clock, due, marks, 0, 2) == [None, None]
    due.work = Work()

    assert _looks(clock, due, marks, 4, 5) == [2, 2]

    marks.clear(Horizon(_START + timedelta(seconds=5), _START))
    assert _looks(clock, due, marks, 6) == [5]


def test_sweeps_that_others_left_do_not_hold_the_mark() -> None:
    clock = SettableClock()
    due, marks = _Due(clock, 1.0), LowWater(clock)
    due.work = Work(only_settles=True)

    assert _looks(clock, due, marks, 0, 2, 4) == [None, None, 2]


def test_messages_that_were_left_are_looked_for_when_the_next_sweep_begins() -> None:
    """Even if a look at all messages, which takes long, is not made for a while."""
    clock = SettableClock()
    due, marks = _Due(clock, 1.0), LowWater(clock)
    assert _looks(clock, due, marks, 0, 2) == [None, None]

    left = Horizon(_START + timedelta(seconds=4), _START, since=_START + timedelta(seconds=3))
    clock.advance(2)
    marks.clear(left, 1.5)
    assert marks.tries_at == clock.seconds() + 1.5
    assert _looks(clock, due, marks, 5.5) == [4]
    marks.clear(Horizon(_START + timedelta(seconds=5.6), _START), 1.5)
    assert _looks(clock, due, marks, 6) == [pytest.approx(5.6)]

    marks.begin()
    assert (marks.tries_at, marks.seconds_to_try) == (None, 0)
    assert _looks(clock, due, marks, 6.1) == [3]
