"""Rules of the doctor on SQL Server; what a stand-in cannot show is tested here alone."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from duesweep.checks.finding import Check, Severity, is_to_mend
from duesweep.checks.server import ClockReading
from duesweep.checks.sqlserver import SqlServerFacts, sqlserver_findings

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FACTS = SqlServerFacts(
    setting="store.dsn",
    version="16.0.4135.4",
    database="nsb",
    compatibility_level=160,
    updateability="READ_WRITE",
    is_read_committed_snapshot=True,
    snapshot_isolation="OFF",
    minutes_ahead=60,
    json_problem=None,
    readings=[ClockReading(NOON, NOON, NOON)],
    tables=[],
    lock_escalation="TABLE",
)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {}),
        ({"json_problem": "208"}, {Check.SERVER_VERSION: Severity.FAULT}),
        ({"updateability": "READ_ONLY"}, {Check.SERVER_WRITABLE: Severity.FAULT}),
        (
            {"is_read_committed_snapshot": False},
            {Check.READ_COMMITTED_SNAPSHOT: Severity.WARNING},
        ),
        ({"snapshot_isolation": "ON"}, {}),
        ({"ambiguous": "both"}, {Check.ONE_DELAYED_TABLE: Severity.FAULT}),
        ({"lock_escalation": None}, {}),
    ],
)
def test_difference_of_a_server_is_one_finding(
    changes: dict[str, object], expected: dict[Check, Severity]
) -> None:
    findings = list(sqlserver_findings(replace(FACTS, **changes)))

    assert {f.check: f.severity for f in findings if is_to_mend(f)} == expected


def test_isolation_that_blocks_comes_with_the_statement_and_says_what_is_right_anyway() -> None:
    findings = sqlserver_findings(replace(FACTS, is_read_committed_snapshot=False))

    (found,) = [f for f in findings if is_to_mend(f)]
    assert "Sweeps work either way" in found.found
    assert "ALTER DATABASE [nsb] SET READ_COMMITTED_SNAPSHOT ON" in str(found.advice)


def test_server_that_only_takes_messages_is_not_asked_for_a_delayed_table() -> None:
    findings = list(sqlserver_findings(replace(FACTS, holds_messages=False)))

    assert not {Check.ONE_DELAYED_TABLE, Check.LOCK_ESCALATION} & {f.check for f in findings}


def test_old_compatibility_level_is_named() -> None:
    facts = replace(FACTS, json_problem="Invalid object name", compatibility_level=120)

    (found,) = [f for f in sqlserver_findings(facts) if is_to_mend(f)]
    assert "compatibility level 120" in found.found
    assert "ALTER DATABASE [nsb] SET COMPATIBILITY_LEVEL = 130" in str(found.advice)
