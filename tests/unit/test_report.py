"""What is shown of a sweep at its end."""

import json
from datetime import UTC, datetime

import pytest

from duesweep.cli import report
from duesweep.stores.values import FailureReason, SweepSummary

_START = datetime(2026, 11, 1, 8, tzinfo=UTC)
_FAILURES = (
    FailureReason('There is no queue table "public"."Nowhere"; create it', 1_200, "Nowhere"),
    FailureReason("The headers are not JSON [x]", 1, None),
)


def _summary(*failures: FailureReason) -> SweepSummary:
    return SweepSummary(
        sweep_id="5",
        source="nsb/public.Sales.Delayed",
        start=_START,
        end=_START,
        horizon=_START,
        found=1_201,
        claimed=1_201,
        dispatched=0,
        failed=1_201,
        exhausted=0,
        skipped=0,
        gone=0,
        eligible_later=0,
        left=0,
        over_limit=0,
        bytes=0,
        lateness_p50_ms=None,
        lateness_p95_ms=None,
        lateness_max_ms=None,
        rows_per_second=0.0,
        outcome="failures",
        reason=None,
        failures=failures,
    )


def test_json_names_the_reasons_of_failures() -> None:
    assert json.loads(json.dumps(report.as_json(_summary(*_FAILURES))))["failures"] == [
        {
            "reason": 'There is no queue table "public"."Nowhere"; create it',
            "count": 1_200,
            "destination": "Nowhere",
        },
        {"reason": "The headers are not JSON [x]", "count": 1, "destination": None},
    ]


def test_table_is_followed_by_the_reasons_of_failures(capsys: pytest.CaptureFixture[str]) -> None:
    report.print_summary(_summary(*_FAILURES))

    lines = capsys.readouterr().out.splitlines()
    at = lines.index("Why messages failed, the commonest reasons:")
    assert lines[at + 1 :] == [
        '  1,200 messages, as for Nowhere: There is no queue table "public"."Nowhere"; create it',
        "  1 message: The headers are not JSON [x]",
    ]
    assert not any("failures" in line and "Nowhere" in line for line in lines[:at])


def test_sweep_without_failures_names_no_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    report.print_summary(_summary())

    assert "Why" not in capsys.readouterr().out
    assert report.as_json(_summary())["failures"] == []
