"""Rules of the doctor: from rows to findings, on any server and on PostgreSQL."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from duesweep.core.address import TableName
from duesweep.core.finding import Check, Finding, Severity, is_to_mend
from duesweep.drivers.statements import FoundTable
from duesweep.stores import postgresql
from duesweep.stores.dialect import WantedIndex, WantedTable
from duesweep.stores.postgresql import POSTGRESQL
from duesweep.stores.tables import examine, table_findings
from support.rows import RecordedSession, Rows

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
    QUEUE,
    "queue",
    columns={"Id": frozenset({"uuid"}), "Headers": frozenset({"nvarchar", "varchar"})},
    rights=("SELECT", "INSERT"),
    create="create it",
    indexes=(WantedIndex("Id", "slow", "CREATE INDEX"),),
    unicode="Headers",
)
FOUND = FoundTable(is_table=True, columns={"Id": "uuid", "Headers": "nvarchar"})
INDEXED, INDEXED_IN_PART = {("Id", False)}, {("Id", True)}


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
    monkeypatch.setattr(postgresql.PostgreSql, "connect", lambda *_: nullcontext(session))
    return list(examine(POSTGRESQL, "", "store.dsn", lambda: [WANTED], queue_columns={}))


def _bad(findings: Sequence[Finding]) -> dict[Check, Severity]:
    return {finding.check: finding.severity for finding in findings if is_to_mend(finding)}


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [(4.9, None), (-4.9, None), (-6, "6.0 s behind"), (3_600, "3,600.0 s ahead of")],
)
def test_clocks_that_differ_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, ahead: float, expected: str | None
) -> None:
    def server() -> datetime:
        return datetime.now(UTC) + timedelta(seconds=ahead)

    found = _examined(monkeypatch, {"doctor_clock": [{"now": server}]})

    assert _bad(found) == ({Check.CLOCK_SKEW: WARNING} if expected else {})
    assert expected is None or any(expected in each.found for each in found)


FAULT, WARNING = Severity.FAULT, Severity.WARNING
SKIPPED, OK = Severity.SKIPPED, Severity.OK


def _columns(**columns: str) -> FoundTable:
    return replace(FOUND, columns=columns)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (FOUND, {}),
        (replace(FOUND, is_table=False), {Check.TABLE_SHAPE: FAULT}),
        (_columns(Id="uuid"), {Check.TABLE_SHAPE: FAULT}),
        (_columns(Headers="nvarchar", Id="text"), {Check.TABLE_SHAPE: FAULT}),
        (_columns(Id="uuid", Headers="varchar"), {Check.HEADERS_UNICODE: WARNING}),
        (_columns(Id="uuid", Headers="text"), {Check.HEADERS_UNICODE: FAULT}),
    ],
)
def test_difference_of_a_table_is_one_finding(
    found: FoundTable, expected: dict[Check, Severity]
) -> None:
    findings = list(table_findings(WANTED, found, INDEXED))

    assert _bad(findings) == expected
    assert {f.check for f in findings if f.stops} == {c for c, s in expected.items() if s == FAULT}


@pytest.mark.parametrize(
    ("columns", "indexed", "partial", "expected"),
    [
        (FOUND.columns, INDEXED, False, {}),
        (FOUND.columns, set(), False, {Check.TABLE_INDEX: WARNING}),
        (FOUND.columns, INDEXED_IN_PART, False, {Check.TABLE_INDEX: WARNING}),
        (FOUND.columns, INDEXED_IN_PART, True, {}),
        # A sweep's start does not ask for indexes.
        (FOUND.columns, None, False, {}),
        # A missing column has no index either: there is only one finding.
        ({"Headers": "nvarchar"}, set(), False, {Check.TABLE_SHAPE: FAULT}),
    ],
)
def test_index_that_lacks_is_a_warning_and_one_that_may_leave_rows_out_may(
    columns: Mapping[str, str],
    indexed: set[tuple[str, bool]] | None,
    expected: dict[Check, Severity],
    *,
    partial: bool,
) -> None:
    wanted = replace(WANTED, indexes=(replace(WANTED.indexes[0], partial=partial),))

    found = list(table_findings(wanted, FoundTable(is_table=True, columns=columns), indexed))

    assert _bad(found) == expected


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
        ({"describe_tables": [], "similar_tables": []}, {Check.TABLE_EXISTS: FAULT}),
        (_changed("describe_tables", missing_rights=["INSERT"]), {Check.TABLE_RIGHTS: FAULT}),
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
    assert found == "The session that store.dsn opens on a replica is read-only"


@pytest.mark.parametrize(
    ("sequence", "severities"),
    [
        (dict(SEQUENCE, last=None), []),
        (dict(SEQUENCE, last=2**30 - 1), []),
        (dict(SEQUENCE, last=2**30), [WARNING]),
        (dict(SEQUENCE, last=1_932_735_283), [FAULT]),
        (dict(SEQUENCE, last=1_932_735_282), [WARNING]),
        (dict(SEQUENCE, last=2**40, most=2**63 - 1), []),
        (dict(SEQUENCE, last=None, is_hidden=True), [SKIPPED]),
    ],
)
def test_headroom_of_seq(
    monkeypatch: pytest.MonkeyPatch, sequence: dict[str, object], severities: list[Severity]
) -> None:
    findings = _examined(monkeypatch, {"doctor_sequences": [sequence]})

    assert [f.severity for f in findings if f.check == Check.SEQ_HEADROOM] == severities


@pytest.mark.parametrize(
    ("sslmode", "is_encrypted", "expected"),
    [
        ("require", True, "the certificate is not checked (sslmode require)"),
        ("verify-ca", True, "the name in the server's certificate is not"),
        ("verify-full", True, None),
        ("prefer", True, None),
        # By a Unix socket.
        ("require", False, None),
    ],
)
def test_tls_that_is_asked_for_without_a_check_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, sslmode: str, expected: str | None, *, is_encrypted: bool
) -> None:
    monkeypatch.setattr(RecordedSession, "tls", {"sslmode": sslmode})
    monkeypatch.setattr(RecordedSession, "is_encrypted", is_encrypted)

    found = _examined(monkeypatch, {})

    assert _bad(found) == ({Check.SERVER_CERTIFICATE: WARNING} if expected else {})
    assert expected is None or any(expected in each.found for each in found)
