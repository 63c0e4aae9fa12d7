"""The options by which commands choose messages and a handover its end, and their meanings.

How they are given is in tests/golden (help) and tests/acceptance/test_changing.py.
"""

import re
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duesweep.cli.commands import Which
from duesweep.cli.runs import parse_cutoff
from duesweep.core.account import SweepSummary
from duesweep.core.change import DueSpan, MessageFilter
from duesweep.core.errors import ConfigError, ExitCode
from duesweep.core.times import parse_moment
from duesweep.operations.handover import Handover

NOW = datetime(2026, 12, 1, 8, tzinfo=UTC)


def _read(**given: Any) -> MessageFilter:
    times = {name: parse_moment(text) for name, text in given.items() if name.startswith("due")}
    keys = given.pop("keys", ())
    return Which(**given | times).filter(keys)(NOW)


def test_no_option_means_all_messages() -> None:
    assert _read().is_empty


def test_each_option_is_a_condition() -> None:
    read = _read(
        **{"keys": ["1", "2"], "message_id": ["m"], "destination": "Bill*", "saga_id": "s"},
        **{"message_type": "*Cancel*", "header": ["A=b=*", "C="], "due_after": "-1d"},
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
        ({"header": ["Colour"]}, "NAME=PATTERN"),
        ({"header": ["=blue"]}, "NAME=PATTERN"),
        ({"due_after": "+2h", "due_before": "+1h"}, "exchange --due-after and --due-before"),
        ({"due_after": "now", "due_before": "now"}, "exchange --due-after and --due-before"),
    ],
)
def test_option_that_cannot_be_read_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        _read(**given)


@pytest.mark.parametrize(
    "text",
    [
        "2026-12-01T08:00:00Z",
        "2026-12-01 09:00:00+01:00",
    ],
)
def test_cutoff_is_an_instant(text: str) -> None:
    assert parse_cutoff(text) == datetime(2026, 12, 1, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    ["tomorrow", "", "2026-13-01T00:00:00Z", "2026-12-01T08:00:00"],
)
def test_cutoff_that_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--cutoff"):
        parse_cutoff(text)


@pytest.mark.parametrize(
    ("outcome", "failed", "left", "code"),
    [
        ("done", 0, 0, ExitCode.DONE),
        ("done", 0, 1, ExitCode.WORK_LEFT),
        ("failures", 2, 2, ExitCode.MESSAGES_FAILED),
        ("failures", 2, 3, ExitCode.WORK_LEFT),
        ("incomplete", 0, 0, ExitCode.WORK_LEFT),
        ("abandoned", 0, 0, ExitCode.WORK_LEFT),
    ],
)
def test_handover_is_done_when_it_has_left_nothing(
    outcome: str, failed: int, left: int, code: ExitCode
) -> None:
    values = {field.name: 0 for field in fields(SweepSummary)}
    summary = SweepSummary(**values | {"outcome": outcome, "failed": failed})

    assert Handover(summary, left).exit_code is code
