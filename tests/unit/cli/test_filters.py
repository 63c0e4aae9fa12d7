"""The options by which commands choose messages, and the filter that they mean.

How they are given is in tests/golden (help) and tests/acceptance/test_changing.py.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duesweep.cli.filters import FilterOptions
from duesweep.core.change import DueSpan, MessageFilter
from duesweep.core.errors import ConfigError
from duesweep.core.times import parse_moment

NOW = datetime(2026, 12, 1, 8, tzinfo=UTC)


def _read(**given: Any) -> MessageFilter:
    times = {name: parse_moment(text) for name, text in given.items() if name.startswith("due")}
    return FilterOptions(**given | times).at(NOW)


def test_no_option_means_all_messages() -> None:
    assert _read().is_empty


def test_each_option_is_a_condition() -> None:
    read = _read(
        **{"keys": ["1", "2"], "message_ids": ["m"], "destination": "Bill*", "saga_id": "s"},
        **{"message_type": "*Cancel*", "headers": ["A=b=*", "C="], "due_after": "-1d"},
        due_before="2026-12-01T10:00:00+01:00",
    )

    assert read == MessageFilter(
        keys=("1", "2"),
        message_ids=("m",),
        destination="Bill*",
        message_type="*Cancel*",
        saga_id="s",
        headers=(("A", "b=*"), ("C", "")),
        due=DueSpan(NOW - timedelta(days=1), NOW + timedelta(hours=1)),
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"headers": ["Colour"]}, "NAME=PATTERN"),
        ({"headers": ["=blue"]}, "NAME=PATTERN"),
        ({"due_after": "+2h", "due_before": "+1h"}, "exchange --due-after and --due-before"),
        ({"due_after": "now", "due_before": "now"}, "exchange --due-after and --due-before"),
    ],
)
def test_option_that_cannot_be_read_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        _read(**given)
