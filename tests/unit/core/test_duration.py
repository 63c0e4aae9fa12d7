"""Durations: read, bounded, split."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.core.duration import (
    LONGEST,
    check_length,
    parse,
    read_time_span,
    split,
    write_time_span,
)
from duesweep.errors import ConfigError


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
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text", ["", " ", "30", "30 s", "-1s", "1s2m", "1.5s", "s", "1w", "1s1s", "\u0663s", "0x1s"]
)
def test_text_that_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a duration"):
        parse(text)


@pytest.mark.parametrize("text", ["24856d", "999999999d", "24855d1ms"])
def test_duration_that_servers_cannot_count_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="from 0 to 24855 days"):
        parse(text)


def test_negative_duration_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        check_length(timedelta(microseconds=-1))


@given(st.timedeltas(min_value=timedelta(), max_value=LONGEST))
def test_parts_add_up_to_whole_milliseconds_and_read_back(duration: timedelta) -> None:
    days, hours, minutes, seconds, milliseconds = parts = split(duration)

    assert hours < 24
    assert max(minutes, seconds) < 60
    assert milliseconds < 1_000
    whole = duration - timedelta(microseconds=duration.microseconds % 1_000)
    assert timedelta(days, seconds, 0, milliseconds, minutes, hours) == whole
    units = zip(parts, ("d", "h", "m", "s", "ms"), strict=True)
    assert parse("".join(f"{count}{unit}" for count, unit in units)) == whole


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00:00:30", timedelta(seconds=30)),
        ("01:02:03.0040000", timedelta(hours=1, minutes=2, seconds=3, milliseconds=4)),
        ("10.00:00:00", timedelta(days=10)),
        ("00:00:00.5", timedelta(milliseconds=500)),
        (None, None),
        ("", None),
        ("soon", None),
        ("-00:00:01", None),
    ],
)
def test_time_span_of_dotnet_is_read(text: str | None, expected: timedelta | None) -> None:
    assert read_time_span(text) == expected


@given(st.timedeltas(min_value=timedelta(), max_value=LONGEST))
def test_time_span_that_is_written_reads_back(duration: timedelta) -> None:
    assert read_time_span(write_time_span(duration)) == duration


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
