"""Times: durations, what people write, how long a sweep waits, how soon messages come due."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.core.errors import ConfigError
from duesweep.core.policy import REST_SECONDS, wait_after, wait_for_next
from duesweep.core.times import (
    BUCKETS,
    LONGEST_DURATION,
    bucket_ends,
    bucket_of,
    parse_duration,
    parse_moment,
    read_time_span,
)
from duesweep.core.world import NO_PATIENCE, Patience
from duesweep_transport.values import split_duration, write_time_span

_NOW = datetime(2026, 12, 1, 8, tzinfo=UTC)
_HOUR, _SECOND = timedelta(hours=1), timedelta(seconds=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", timedelta(seconds=30)),
        ("500ms", timedelta(milliseconds=500)),
        ("5m", timedelta(minutes=5)),
        ("1d2h3m4s5ms", timedelta(1, 4, 0, 5, 3, 2)),
        ("90m", timedelta(hours=1, minutes=30)),
        (" 0s ", timedelta()),
        ("2h5ms", timedelta(hours=2, milliseconds=5)),
    ],
)
def test_duration_is_read(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


_NO_DURATIONS = ("", " ", "30", "30 s", "-1s", "1s2m", "1.5s", "s", "1w", "1s1s", "\u0663s", "0x1s")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *((text, "is not a duration") for text in _NO_DURATIONS),
        *((text, "from 0 to 24855 days") for text in ("24856d", "999999999d", "24855d1ms")),
    ],
)
def test_other_text_is_no_duration(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_duration(text)


@given(st.timedeltas(min_value=timedelta(), max_value=LONGEST_DURATION))
def test_parts_add_up_to_whole_milliseconds_and_read_back(duration: timedelta) -> None:
    days, hours, minutes, seconds, milliseconds = parts = split_duration(duration)

    assert hours < 24
    assert max(minutes, seconds) < 60
    assert milliseconds < 1_000
    whole = duration - timedelta(microseconds=duration.microseconds % 1_000)
    assert timedelta(days, seconds, 0, milliseconds, minutes, hours) == whole
    units = zip(parts, ("d", "h", "m", "s", "ms"), strict=True)
    assert parse_duration("".join(f"{count}{unit}" for count, unit in units)) == whole
    assert read_time_span(write_time_span(duration)) == duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("01:02:03.0040000", timedelta(hours=1, minutes=2, seconds=3, milliseconds=4)),
        ("10.00:00:00", timedelta(days=10)),
        ("00:00:00.5", timedelta(milliseconds=500)),
        *((text, None) for text in (None, "", "soon", "-00:00:01")),
    ],
)
def test_time_span_of_dotnet_is_read(text: str | None, expected: timedelta | None) -> None:
    assert read_time_span(text) == expected


@pytest.mark.parametrize(
    ("duration", "written"),
    [
        (timedelta(seconds=30), "00:00:30"),
        (timedelta(days=2, hours=3, minutes=4, seconds=5), "2.03:04:05"),
        (timedelta(milliseconds=500), "00:00:00.5000000"),
    ],
)
def test_time_span_is_written_as_dotnet_writes_it(duration: timedelta, written: str) -> None:
    assert write_time_span(duration) == written


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-12-01T08:00:00Z", _NOW),
        ("2026-12-01 10:00+02:00", _NOW),
        ("now", _NOW),
        ("+2h", _NOW + 2 * _HOUR),
        (" -1d12h30m ", _NOW - timedelta(days=1, hours=12, minutes=30)),
    ],
)
def test_moment_is_an_instant_or_counted_from_now(text: str, expected: datetime) -> None:
    found = parse_moment(text).at(_NOW)

    assert (found, found.tzinfo) == (expected, UTC)


@pytest.mark.parametrize(
    "text", ["", "soon", "+", "+2", "2h", "-", "2026-13-01T00:00Z", "0001-01-01T00:00:00+14:00"]
)
def test_other_text_is_no_moment_and_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r"as in") as raised:
        parse_moment(text)

    assert repr(text.lstrip("+-")) in str(raised.value)


@pytest.mark.parametrize("text", ["2026-12-01", "2026-12-01T08:00:00"])
def test_moment_without_a_zone_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="has no time zone"):
        parse_moment(text)


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [
        *((seconds, "overdue") for seconds in (-86_400, -0.001)),
        *((seconds, "in_1_min") for seconds in (0, 59)),
        (60, "in_5_min"),
        (300, "in_1_h"),
        *((seconds, "in_1_d") for seconds in (3_600, 86_399)),
        *((seconds, "later") for seconds in (86_400, None)),
    ],
)
def test_message_is_in_the_first_bucket_that_ends_after_its_due(
    seconds: float | None, bucket: str
) -> None:
    due = None if seconds is None else _NOW + seconds * _SECOND

    assert BUCKETS[bucket_of(due, bucket_ends(_NOW))] == bucket


def test_all_waits_for_a_lock_together_have_an_end() -> None:
    patience = Patience(0.15)

    tries = [patience.wait(lambda: "sweep 1 on host a") for _ in range(5)]

    assert tries == [True, True, False, False, False]
    assert not NO_PATIENCE.wait(lambda: "sweep 1 on host a")


def test_stop_ends_the_wait_for_a_lock() -> None:
    asked = [False, True]

    patience = Patience(60, lambda: asked.pop(0))

    assert [patience.wait(lambda: "sweep 1 on host a") for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    ("due_in", "seconds"),
    [(0.7, 0.7), (5, 2), (0.01, 0.02), (-60, 0.02)],
    ids=["soon", "after the longest wait", "at once", "due already, but held back"],
)
def test_watcher_waits_for_the_next_message_within_bounds(due_in: float, seconds: float) -> None:
    assert wait_for_next(_NOW + due_in * _SECOND, _NOW, 2) == pytest.approx(seconds)
    assert wait_for_next(None, None, 2) == 2


def test_watcher_waits_twice_as_long_after_each_error_up_to_a_limit() -> None:
    waits = [wait_after(times, 2) for times in range(5)]

    assert waits == [REST_SECONDS, 0.6, 1.2, 2, 2]
    # A watcher works again within 5 s after an outage.
    assert wait_after(10_000) == 4
