"""Rules of the doctor: from rows to findings, on any server and on PostgreSQL."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from duesweep.core.address import TableName
from duesweep.core.finding import Check, ClockReading, Finding, Severity, clock_skew, is_to_mend
from duesweep.drivers.postgresql.start import SessionStart
from duesweep.drivers.statements import FoundTable
from duesweep.stores import postgresql
from duesweep.stores.checks_postgresql import certificate
from duesweep.stores.dialect import WantedIndex
from duesweep.stores.postgresql import POSTGRESQL
from duesweep.stores.tables import WantedTable, examine, table_findings
from support.rows import RecordedSession, Rows

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SEQUENCE = {
    "schema": "public",
    "table": "Billing",
    "column_type": "integer",
    "sequence": "s",
    "last": 1_000,
    "most": 2**31 - 1,
    "is_hidden": False,
}
QUEUE = TableName("public", "Billing")
WANTED = WantedTable(
    role="queue",
    table=QUEUE,
    columns={"Id": frozenset({"uuid"}), "Headers": frozenset({"nvarchar", "varchar"})},
    rights=("SELECT", "INSERT"),
    create="create it",
    indexes=(WantedIndex("Id", "slow", "CREATE INDEX"),),
    unicode="Headers",
)
FOUND = FoundTable(
    is_table=True, columns={"Id": "uuid", "Headers": "nvarchar"}, indexed=frozenset({"Id"})
)
INDEXED_IN_PART = replace(FOUND, indexed=frozenset(), indexed_in_part=frozenset({"Id"}))


def _reading(ahead: float, took: float = 0) -> ClockReading:
    after = NOON + timedelta(seconds=took)
    return ClockReading(NOON + timedelta(seconds=took / 2 + ahead), NOON, after)


ROWS = {
    "describe_session": [
        {
            "version": "16.2",
            "version_number": 160_002,
            "is_replica": False,
            "is_read_only": False,
            "encoding": "UTF8",
            "is_synced": True,
        }
    ],
    "doctor_clock": [{"now": partial(datetime.now, UTC)}],
    "doctor_time_outs": [],
    "describe_tables": [
        {
            "schema": QUEUE.schema,
            "table": QUEUE.table,
            "kind": "r",
            "column_names": ["Id", "Headers"],
            "column_types": ["uuid", "nvarchar"],
            "missing_rights": [],
            "missing_sequences": [],
            "mark": None,
            "is_unlogged": False,
            "has_rules": False,
            "hidden_by": None,
            "has_key": True,
            "has_primary_key": True,
            "published": None,
            "hooks": [],
            "role": "sweeper",
        }
    ],
    "describe_indexes": [{"column_name": "Id", "is_partial": False}],
    "doctor_sequences": [SEQUENCE],
}


def _examined(monkeypatch: pytest.MonkeyPatch, changes: Mapping[str, Rows]) -> list[Finding]:
    """All findings on a database that answers like this, and takes messages only."""
    session = RecordedSession({**ROWS, **changes})
    monkeypatch.setattr(
        session, "start", SessionStart(is_pooled=False, search_path=""), raising=False
    )
    monkeypatch.setattr(postgresql, "connect", lambda *_: nullcontext(session))
    return list(examine(POSTGRESQL, "", "store.dsn", lambda: [WANTED], queue_columns={}))


def _bad(findings: Sequence[Finding]) -> dict[Check, Severity]:
    return {finding.check: finding.severity for finding in findings if is_to_mend(finding)}


@pytest.mark.parametrize(
    ("readings", "severity", "expected"),
    [
        ([_reading(4.9)], Severity.OK, "differ by 4.9 s"),
        ([_reading(-5.1)], Severity.WARNING, "5.1 s behind"),
        ([_reading(3_600)], Severity.WARNING, "3,600.0 s ahead of"),
        # Half of a slow round trip may be what looks like skew.
        ([_reading(6, took=4)], Severity.OK, "differ by 6.0 s"),
        ([_reading(60, took=20), _reading(0.1, took=0.1)], Severity.OK, "differ by 0.1 s"),
    ],
)
def test_clock_skew_is_known_as_far_as_the_best_round_trip_lets_it(
    readings: list[ClockReading], severity: Severity, expected: str
) -> None:
    finding = clock_skew("store.dsn", readings)

    assert (finding.check, finding.severity) == (Check.CLOCK_SKEW, severity)
    assert expected in finding.found


FAULT, WARNING = Severity.FAULT, Severity.WARNING
SKIPPED, OK = Severity.SKIPPED, Severity.OK


def _columns(**columns: str) -> FoundTable:
    return replace(FOUND, columns=columns)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (FOUND, {}),
        (None, {Check.TABLE_EXISTS: FAULT}),
        (replace(FOUND, is_table=False), {Check.TABLE_SHAPE: FAULT}),
        (_columns(Id="uuid"), {Check.TABLE_SHAPE: FAULT}),
        (_columns(Headers="nvarchar", Id="text"), {Check.TABLE_SHAPE: FAULT}),
        # A missing table has no index either: there is only one finding.
        (replace(_columns(Headers="nvarchar"), indexed=frozenset()), {Check.TABLE_SHAPE: FAULT}),
        (_columns(Id="uuid", Headers="varchar"), {Check.HEADERS_UNICODE: WARNING}),
        (_columns(Id="uuid", Headers="text"), {Check.HEADERS_UNICODE: FAULT}),
        (replace(FOUND, missing_rights=["INSERT"]), {Check.TABLE_RIGHTS: FAULT}),
        (replace(FOUND, indexed=frozenset()), {Check.TABLE_INDEX: WARNING}),
        (INDEXED_IN_PART, {Check.TABLE_INDEX: WARNING}),
    ],
)
def test_difference_of_a_table_is_one_finding(
    found: FoundTable | None, expected: dict[Check, Severity]
) -> None:
    assert _bad(list(table_findings(WANTED, found))) == expected


def test_index_that_may_leave_rows_out_may() -> None:
    wanted = replace(WANTED, indexes=(replace(WANTED.indexes[0], partial=True),))

    assert _bad(list(table_findings(wanted, INDEXED_IN_PART))) == {}


def _changed(statement: str, **values: object) -> dict[str, Rows]:
    """The answer to a statement, with other values."""
    return {statement: [{**ROWS[statement][0], **values}]}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {}),
        (_changed("describe_session", version_number=120_000), {Check.SERVER_VERSION: FAULT}),
        (_changed("describe_session", is_synced=False), {Check.DURABILITY: WARNING}),
        (_changed("describe_tables", is_unlogged=True), {Check.DURABILITY: WARNING}),
        (_changed("describe_session", is_read_only=True), {Check.SERVER_WRITABLE: FAULT}),
        (_changed("describe_session", encoding="SQL_ASCII"), {Check.TEXT_ENCODING: FAULT}),
        (_changed("describe_session", encoding="EUC_JP"), {Check.TEXT_ENCODING: WARNING}),
        ({"doctor_sequences": []}, {}),
        (_changed("describe_tables", missing_sequences=["s"]), {Check.TABLE_RIGHTS: FAULT}),
    ],
)
def test_difference_of_a_server_is_one_finding(
    monkeypatch: pytest.MonkeyPatch, changes: Mapping[str, Rows], expected: dict[Check, Severity]
) -> None:
    assert _bad(_examined(monkeypatch, changes)) == expected


def test_replica_is_called_one(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = _changed("describe_session", is_replica=True, is_read_only=True)

    (found,) = [f.found for f in _examined(monkeypatch, changes) if is_to_mend(f)]
    assert found == "This is a replica"


@pytest.mark.parametrize(
    ("sequence", "severity"),
    [
        (dict(SEQUENCE, last=None), Severity.OK),
        (dict(SEQUENCE, last=2**30 - 1), Severity.OK),
        (dict(SEQUENCE, last=2**30), Severity.WARNING),
        (dict(SEQUENCE, last=1_932_735_283), Severity.FAULT),
        (dict(SEQUENCE, last=1_932_735_282), Severity.WARNING),
        (dict(SEQUENCE, last=2**40, most=2**63 - 1), Severity.OK),
        (dict(SEQUENCE, last=None, is_hidden=True), Severity.SKIPPED),
    ],
)
def test_headroom_of_seq(
    monkeypatch: pytest.MonkeyPatch, sequence: dict[str, object], severity: Severity
) -> None:
    findings = _examined(monkeypatch, {"doctor_sequences": [sequence]})

    assert [f.severity for f in findings if f.check == Check.SEQ_HEADROOM] == [severity]


@pytest.mark.parametrize(
    ("sslmode", "session", "severity", "expected"),
    [
        ("require", "encrypted", WARNING, "the certificate is not checked (sslmode require)"),
        ("verify-ca", "encrypted", WARNING, "the name in the server's certificate is not"),
        ("verify-full", "encrypted", OK, "certificate and its name are checked"),
        ("prefer", "encrypted", OK, "not required (sslmode prefer); this session is encrypted"),
        ("prefer", "plain", OK, "this session is not encrypted"),
        ("verify-full", "plain", OK, "uses a Unix socket, without TLS"),
    ],
)
def test_tls_that_is_asked_for_without_a_check_is_a_warning(
    sslmode: str, session: str, severity: Severity, expected: str
) -> None:
    found = certificate("store.dsn", sslmode, is_encrypted=session == "encrypted")

    assert (found.check, found.severity) == (Check.SERVER_CERTIFICATE, severity)
    assert expected in found.found
