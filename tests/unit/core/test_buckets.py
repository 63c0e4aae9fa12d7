"""How soon messages come due, in a few steps."""

from datetime import UTC, datetime, timedelta

import pytest

from duesweep.core.buckets import BUCKETS, bucket_ends, bucket_of

NOW = datetime(2026, 12, 1, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [
        (-86_400, "overdue"),
        (-0.001, "overdue"),
        (0, "in_1_min"),
        (59, "in_1_min"),
        (60, "in_5_min"),
        (300, "in_1_h"),
        (3_600, "in_1_d"),
        (86_399, "in_1_d"),
        (86_400, "later"),
    ],
)
def test_message_is_in_the_first_bucket_that_ends_after_its_due(
    seconds: float, bucket: str
) -> None:
    due = NOW + timedelta(seconds=seconds)

    assert BUCKETS[bucket_of(due, bucket_ends(NOW))] == bucket


def test_what_is_never_due_is_later_than_all() -> None:
    assert BUCKETS[bucket_of(None, bucket_ends(NOW))] == "later"
