"""How the command line shows times and sizes."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.report.quantities import count_text, duration_text, size_text, time_text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (999.6, "1.0 s"),
        (1_000, "1.0 s"),
        (9_940, "9.9 s"),
        (9_960, "10 s"),
        (16_200, "16 s"),
        (59_400, "59 s"),
        (59_600, "1 min 0 s"),
        (3_599_400, "59 min 59 s"),
        (3_599_600, "1 h 0 min"),
        (10_830_625, "3 h 1 min"),
        (10_800_625, "3 h 0 min"),
        (86_369_000, "23 h 59 min"),
        (86_399_000, "1 d 0 h"),
        (100 * 86_400_000, "100 d 0 h"),
        (2_000 * 86_400_000, "2,000 d 0 h"),
    ],
)
def test_duration_is_rounded_to_two_units(milliseconds: float, text: str) -> None:
    assert duration_text(milliseconds) == text


@given(st.floats(min_value=0, max_value=1e13))
def test_duration_is_never_far_from_what_it_shows(milliseconds: float) -> None:
    units = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
    words = duration_text(milliseconds).replace(",", "").split()

    shown = sum(float(n) * units[unit] for n, unit in zip(words[::2], words[1::2], strict=True))

    smallest = 100 if "." in words[0] else units[words[-1]]
    assert abs(shown - milliseconds) <= smallest / 2 * 1.001


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1_000, "1.0 kB"),
        (999_940, "999.9 kB"),
        (999_960, "1.0 MB"),
        (12_345_678, "12.3 MB"),
        (8 * 10**15, "8,000.0 TB"),
    ],
)
def test_size_is_rounded(count: int, text: str) -> None:
    assert size_text(count) == text


def test_time_is_in_utc_whatever_its_zone_is() -> None:
    moment = datetime(2026, 12, 1, 9, 0, 5, 987_000, tzinfo=timezone(timedelta(hours=1)))

    assert time_text(moment) == "2026-12-01 08:00:05 UTC"
    assert time_text(moment.astimezone(UTC)) == time_text(moment)


def test_count_has_its_nouns_number() -> None:
    assert [count_text(n, "message") for n in (0, 1, 1_200)] == [
        "0 messages",
        "1 message",
        "1,200 messages",
    ]
