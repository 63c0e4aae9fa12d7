"""Moments as T-SQL takes them, and texts as the server sends them."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.drivers.sqlserver.binding import bound_text, decode_utf16, due_of

_DAY = datetime(2026, 11, 22, tzinfo=UTC)


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        # What Python keeps of a tick's seven digits leads to the same tick.
        ("2026-11-22 10:00:00.996666", "2026-11-22 10:00:00.9966667"),
        ("2026-11-22 10:00:00.003333", "2026-11-22 10:00:00.0033333"),
        ("2026-11-22 10:00:00", "2026-11-22 10:00:00.0000000"),
        ("2026-11-22 10:00:00.000001", "2026-11-22 10:00:00.0033333"),
        ("2026-12-31 23:59:59.999", "2027-01-01 00:00:00.0000000"),
        ("0001-01-01 00:00:00", "1753-01-01 00:00:00.0000000"),
        ("9999-12-31 23:59:59.999999", "9999-12-31 23:59:59.9966667"),
    ],
)
def test_bound_is_the_tick_at_a_moment_or_the_next_one(moment: str, expected: str) -> None:
    assert bound_text(due_of(moment)) == expected


@given(st.integers(0, 86_400 * 300), st.integers(0, 86_400 * 1_000_000))
def test_tick_is_before_a_moment_if_it_is_before_its_bound(tick: int, moment_us: int) -> None:
    bound = bound_text(_DAY + timedelta(microseconds=moment_us))

    days = due_of(bound[:19]) - _DAY
    bound_ticks = round((days.days * 86_400 + days.seconds + Fraction(bound[19:])) * 300)
    assert (Fraction(tick, 300) < Fraction(moment_us, 1_000_000)) == (tick < bound_ticks)


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        ("Grüße 😀".encode("utf-16-le"), "Grüße 😀"),
        (b"\x00\xd8", r"\x00\xd8"),
        (b"a\x00\x00\xdc", r"a\x00\xdc"),
        (None, None),
    ],
)
def test_half_a_surrogate_pair_is_shown_and_fails_no_task(
    stored: bytes | None, text: str | None
) -> None:
    assert decode_utf16(stored) == text
