"""Times as people write them on a command line."""

from datetime import UTC, datetime, timedelta

import pytest

from duesweep.core.moment import parse
from duesweep.errors import ConfigError

NOW = datetime(2026, 12, 1, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-12-01T08:00:00Z", NOW),
        ("2026-12-01 10:00+02:00", NOW),
        ("now", NOW),
        ("+2h", NOW + timedelta(hours=2)),
        (" -1d12h30m ", NOW - timedelta(days=1, hours=12, minutes=30)),
    ],
)
def test_time_is_an_instant_or_counted_from_now(text: str, expected: datetime) -> None:
    found = parse(text).at(NOW)

    assert found == expected
    assert found.tzinfo is UTC


@pytest.mark.parametrize(
    "text", ["", "soon", "+", "+2", "2h", "-", "2026-13-01T00:00Z", "0001-01-01T00:00:00+14:00"]
)
def test_other_text_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r"as in") as raised:
        parse(text)

    assert repr(text.lstrip("+-")) in str(raised.value)


@pytest.mark.parametrize("text", ["2026-12-01", "2026-12-01T08:00:00"])
def test_time_without_a_zone_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="has no time zone"):
        parse(text)
