"""What `duesweep handover` takes, and what it refuses before it starts Spark."""

from dataclasses import fields
from datetime import UTC, datetime

import pytest

from duesweep.cli.handover import parse_cutoff
from duesweep.core.account import SweepSummary
from duesweep.core.errors import ConfigError, ExitCode
from duesweep.handover import Handover


@pytest.mark.parametrize(
    "text",
    [
        "2026-12-01T08:00:00Z",
        "2026-12-01 09:00:00+01:00",
        "2026-12-01 08:00:00:000000 Z",
    ],
)
def test_cutoff_is_an_instant(text: str) -> None:
    assert parse_cutoff(text) == datetime(2026, 12, 1, 8, tzinfo=UTC)


@pytest.mark.parametrize("text", ["tomorrow", "", "2026-13-01T00:00:00Z", "2026-12-01T08:00:00"])
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
