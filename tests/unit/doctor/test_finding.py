"""Findings: their order, what is ignored, and that the documentation knows every check."""

import re
from pathlib import Path

import pytest

from duesweep.checks.finding import (
    Check,
    Severity,
    fault,
    is_to_mend,
    ok,
    skipped,
    warning,
    without,
    worst_first,
)
from duesweep.core.errors import ConfigError

FOUND = [
    ok(Check.POOLER, "store.dsn", "fine"),
    skipped(Check.LEDGER, "/ledger", "not looked at"),
    warning(Check.TABLE_INDEX, "t", "none", "make one"),
    fault(Check.TABLE_EXISTS, "t", "gone", "make it"),
    warning(Check.CLOCK_SKEW, "store.dsn", "slow", "NTP"),
]


def test_worst_comes_first_and_the_rest_stays_in_order() -> None:
    assert [finding.check for finding in worst_first(FOUND)] == [
        Check.TABLE_EXISTS,
        Check.TABLE_INDEX,
        Check.CLOCK_SKEW,
        Check.LEDGER,
        Check.POOLER,
    ]


def test_faults_and_warnings_are_to_mend() -> None:
    assert [is_to_mend(finding) for finding in FOUND] == [False, False, True, True, True]


def test_ignored_checks_keep_what_was_found() -> None:
    left = without(FOUND, ["table-index", "pooler"])

    assert [finding.severity for finding in left] == [
        Severity.OK,
        Severity.SKIPPED,
        Severity.IGNORED,
        Severity.FAULT,
        Severity.WARNING,
    ]
    assert left[2].advice == "make one"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("clock-skews", "did you mean clock-skew?"), ("q", "give one of driver-import")],
)
def test_unknown_check_cannot_be_ignored(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        without(FOUND, [name])


def test_documentation_has_a_row_for_every_check_and_severity() -> None:
    page = Path(__file__).parents[3] / "docs" / "doctor.md"
    # Severities have a row of a table, checks a paragraph that begins with their names.
    rows = re.findall(
        r"(?:^\| |\*\*)`([a-z-]+)`(?: \||\*\*)", page.read_text("utf-8"), re.MULTILINE
    )

    assert sorted(rows) == sorted([*Check, *Severity])
