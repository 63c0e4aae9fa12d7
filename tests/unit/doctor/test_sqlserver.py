"""Rules of the doctor on SQL Server; rules that a stand-in cannot show are tested here alone."""

from collections.abc import Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pytest

from duesweep.core.errors import ConfigError
from duesweep.core.finding import Check, Finding, Severity, is_to_mend, refuse
from duesweep.stores import checks_sqlserver
from duesweep.stores.checks_sqlserver import check_session, lock_escalation, one_delayed_table
from support.rows import RecordedSession, Rows

ROWS = {
    "doctor_server": [
        {
            "version": "16.0.4135.4",
            "database_name": "nsb",
            "compatibility_level": 160,
            "is_read_committed_snapshot": True,
            "snapshot_isolation": "OFF",
            "grantee": "sweeper",
            "minutes_ahead": 60,
            "delayed_durability": "DISABLED",
        }
    ],
    "describe_session": [{"updateability": "READ_WRITE"}],
    "doctor_clock": [{"now": lambda: datetime.now(UTC).replace(tzinfo=None)}],
    "doctor_json": [{"joined": "1"}],
    "read_lists": [{"value": "1"}],
}


def _examined(
    monkeypatch: pytest.MonkeyPatch, changes: Mapping[str, Rows], **refused: str
) -> list[Finding]:
    """All findings on a database that answers like this, and takes messages only."""
    session = RecordedSession({**ROWS, **changes}, refused)
    monkeypatch.setattr(checks_sqlserver, "connect", lambda *_: nullcontext(session))
    return list(checks_sqlserver.examine("", "store.dsn", lambda: []))


def _changed(statement: str, **values: object) -> dict[str, Rows]:
    """The answer to a statement, with other values."""
    return {statement: [{**ROWS[statement][0], **values}]}


@pytest.mark.parametrize(
    ("changes", "refused", "expected"),
    [
        ({}, {}, {}),
        ({}, {"doctor_json": "208"}, {Check.SERVER_VERSION: Severity.FAULT}),
        (
            _changed("describe_session", updateability="READ_ONLY"),
            {},
            {Check.SERVER_WRITABLE: Severity.FAULT},
        ),
        (
            _changed("doctor_server", is_read_committed_snapshot=False),
            {},
            {Check.READ_COMMITTED_SNAPSHOT: Severity.WARNING},
        ),
        (_changed("doctor_server", snapshot_isolation="ON"), {}, {}),
        (_changed("doctor_server", delayed_durability="ALLOWED"), {}, {}),
        (
            _changed("doctor_server", delayed_durability="FORCED"),
            {},
            {Check.DURABILITY: Severity.WARNING},
        ),
    ],
)
def test_difference_of_a_server_is_one_finding(
    monkeypatch: pytest.MonkeyPatch,
    changes: Mapping[str, Rows],
    refused: dict[str, str],
    expected: dict[Check, Severity],
) -> None:
    findings = _examined(monkeypatch, changes, **refused)

    assert {f.check: f.severity for f in findings if is_to_mend(f)} == expected


@pytest.mark.parametrize(("ambiguous", "severity"), [("both", Severity.FAULT), (None, Severity.OK)])
def test_two_tables_that_can_be_the_delayed_one_are_a_fault(
    ambiguous: str | None, severity: Severity
) -> None:
    found = one_delayed_table("store.dsn", ambiguous)

    assert (found.check, found.severity) == (Check.ONE_DELAYED_TABLE, severity)


def test_lock_escalation_of_a_table_that_nobody_sees_is_skipped() -> None:
    assert lock_escalation("store.dsn", []).severity == Severity.SKIPPED


@pytest.mark.parametrize(
    ("changes", "refused", "expected"),
    [
        (
            _changed("describe_session", updateability="READ_ONLY"),
            {},
            "queues.b.dsn names is read-",
        ),
        ({}, {"read_lists": "208"}, r"queues.b.dsn names cannot read lists and JSON \(208\); use"),
    ],
)
def test_sweep_is_refused_by_the_same_checks(
    changes: Mapping[str, Rows], refused: dict[str, str], expected: str
) -> None:
    session: Any = RecordedSession({**ROWS, **changes}, refused)

    with pytest.raises(ConfigError, match=expected):
        refuse(check_session(session, "queues.b.dsn"))


def test_isolation_that_blocks_comes_with_the_statement_and_says_what_is_right_anyway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    findings = _examined(monkeypatch, _changed("doctor_server", is_read_committed_snapshot=False))

    (found,) = [f for f in findings if is_to_mend(f)]
    assert "Sweeps work either way" in found.found
    assert "ALTER DATABASE [nsb] SET READ_COMMITTED_SNAPSHOT ON" in str(found.advice)


def test_server_that_only_takes_messages_is_not_asked_for_a_delayed_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    findings = _examined(monkeypatch, {})

    assert not {Check.ONE_DELAYED_TABLE, Check.LOCK_ESCALATION} & {f.check for f in findings}


def test_old_compatibility_level_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = _changed("doctor_server", compatibility_level=120)

    findings = _examined(monkeypatch, changes, doctor_json="Invalid object name")

    (found,) = [f for f in findings if is_to_mend(f)]
    assert "compatibility level 120" in found.found
    assert "ALTER DATABASE [nsb] SET COMPATIBILITY_LEVEL = 130" in str(found.advice)
