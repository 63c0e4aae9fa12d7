"""Rules of the doctor on SQL Server; rules that a stand-in cannot show are tested here alone."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pytest

from duesweep.core.address import SqlServerTable
from duesweep.core.errors import ConfigError, StoreError
from duesweep.core.finding import Check, Finding, Severity, is_to_mend, refuse
from duesweep.stores import sqlserver
from duesweep.stores.checks_sqlserver import SQL_SERVER_TABLES
from duesweep.stores.dialect import Location, WantedTable
from duesweep.stores.kinds import SQL_SERVER_KINDS
from duesweep.stores.sqlserver import SQL_SERVER
from duesweep.stores.tables import examine
from support.rows import RecordedSession, Rows

ROWS = {
    "describe_session": [
        {
            "version": "16.0.4135.4",
            "database_name": "nsb",
            "compatibility_level": 160,
            "is_read_committed_snapshot": True,
            "updateability": "READ_WRITE",
            "delayed_durability": "DISABLED",
        }
    ],
    "doctor_clock": [{"now": lambda: datetime.now(UTC).replace(tzinfo=None)}],
    "read_lists": [{"joined": "1", "words": 1}],
}


def _examined(
    monkeypatch: pytest.MonkeyPatch,
    changes: Mapping[str, Rows],
    store: Location | None = None,
    **refused: str,
) -> list[Finding]:
    """All findings on a database that answers like this; without a store it only takes messages."""
    session = RecordedSession({**ROWS, **changes}, refused)
    monkeypatch.setattr(sqlserver.SqlServer, "connect", lambda *_: nullcontext(session))
    return list(examine(SQL_SERVER, "", "store.dsn", lambda: [], queue_columns={}, store=store))


def _changed(statement: str, **values: object) -> dict[str, Rows]:
    """The answer to a statement, with other values."""
    return {statement: [{**ROWS[statement][0], **values}]}


@pytest.mark.parametrize(
    ("changes", "refused", "expected"),
    [
        ({}, {}, {}),
        ({}, {"read_lists": "208"}, {Check.SERVER_VERSION: Severity.FAULT}),
        (
            _changed("describe_session", updateability="READ_ONLY"),
            {},
            {Check.SERVER_WRITABLE: Severity.FAULT},
        ),
        (
            _changed("describe_session", is_read_committed_snapshot=False),
            {},
            {Check.READ_COMMITTED_SNAPSHOT: Severity.WARNING},
        ),
        (_changed("describe_session", delayed_durability="ALLOWED"), {}, {}),
        (
            _changed("describe_session", delayed_durability="FORCED"),
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


@pytest.mark.parametrize(
    ("changes", "refused", "expected"),
    [
        (
            _changed("describe_session", updateability="READ_ONLY"),
            {},
            "queues.b.dsn names is read-",
        ),
        ({}, {"read_lists": "208"}, r"queues.b.dsn names cannot read lists and JSON \(208\): SQL"),
    ],
)
def test_sweep_is_refused_by_the_same_checks(
    changes: Mapping[str, Rows], refused: dict[str, str], expected: str
) -> None:
    session: Any = RecordedSession({**ROWS, **changes}, refused)

    with pytest.raises(ConfigError, match=expected):
        refuse(SQL_SERVER_TABLES.check_session(session, "queues.b.dsn"))


def test_isolation_that_blocks_comes_with_the_statement_and_says_what_is_right_anyway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    findings = _examined(
        monkeypatch, _changed("describe_session", is_read_committed_snapshot=False)
    )

    (found,) = [f for f in findings if is_to_mend(f)]
    assert "Sweeps work either way" in found.found
    assert "ALTER DATABASE [nsb] SET READ_COMMITTED_SNAPSHOT ON" in str(found.advice)


def test_old_compatibility_level_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = _changed("describe_session", compatibility_level=120)

    findings = _examined(monkeypatch, changes, read_lists="Invalid object name")

    (found,) = [f for f in findings if is_to_mend(f)]
    assert "compatibility level 120" in found.found
    assert "ALTER DATABASE [nsb] SET COMPATIBILITY_LEVEL = 130" in str(found.advice)


def test_two_tables_that_can_be_the_delayed_one_are_a_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("Sales.delayed", "Sales.timeouts")
    store = Location(
        dialect=SQL_SERVER,
        dsn="",
        source="s",
        candidates=tuple(SqlServerTable("nsb", "dbo", name) for name in names),
        addresses=None,
        kind=SQL_SERVER_KINDS["msmq"],
    )
    tables: dict[str, Rows] = {
        "find_table": [{"found": 1}],
        "describe_table": [],
        "describe_long_name": [],
        "describe_rights": [],
    }

    findings = _examined(monkeypatch, tables, store)

    (found,) = [f for f in findings if f.check is Check.ONE_DELAYED_TABLE]
    assert found.severity is Severity.FAULT
    assert "[nsb].[dbo].[Sales.delayed] and [nsb].[dbo].[Sales.timeouts]" in found.found
    assert "store.delayed_table" in str(found.advice)


@pytest.mark.parametrize("rights", [("SELECT", "INSERT"), ("INSERT",)])
def test_missing_rights_come_with_the_statement_that_grants_them(rights: Sequence[str]) -> None:
    has = {"SELECT": 1, "INSERT": 0, "UPDATE": 0, "DELETE": 0}
    columns = {"Id": "uniqueidentifier"}
    rows: dict[str, Rows] = {
        "describe_table": [
            {"name": n, "type": t, "kind": "BASE TABLE", "mark": None, "policies": 0, "hook": None}
            for n, t in columns.items()
        ],
        "describe_rights": [
            {"name": name, "is_granted": is_granted, "grantee": "sweeper"}
            for name, is_granted in has.items()
        ],
    }
    table = SqlServerTable("nsb", "dbo", "Billing")
    session: Any = RecordedSession(rows)

    found = SQL_SERVER_TABLES.find(session, [WantedTable(table, rights=rights)])[table]

    (lacking,) = found.faults
    assert (lacking.check, lacking.stops) == (Check.TABLE_RIGHTS, True)
    assert lacking.found == "This user lacks INSERT on [nsb].[dbo].[Billing]"
    assert lacking.statements == ["USE [nsb]; GRANT INSERT ON [dbo].[Billing] TO [sweeper]"]


@pytest.mark.parametrize(("rights", "stops"), [(("SELECT", "DELETE"), True), (("INSERT",), False)])
def test_trigger_in_place_of_a_removal_stops_sweeps_and_one_of_a_queue_is_a_risk(
    rights: Sequence[str], *, stops: bool
) -> None:
    column = {"name": "Id", "type": "uniqueidentifier", "kind": "BASE TABLE", "mark": None}
    granted = [{"name": each, "is_granted": 1, "grantee": "sweeper"} for each in rights]
    session: Any = RecordedSession(
        {"describe_table": [{**column, "policies": 0, "hook": "tr"}], "describe_rights": granted}
    )
    table = SqlServerTable("nsb", "dbo", "Sales.Delayed")

    found = SQL_SERVER_TABLES.find(session, [WantedTable(table, rights=rights)])[table]

    assert [(one.check, one.stops) for one in found.faults] == [(Check.TABLE_TRIGGERS, stops)]


@pytest.mark.parametrize(
    ("database", "expected"), [((1, 1), "no database (911)"), ((1, 0), {}), ((0, 0), {})]
)
def test_table_of_a_database_that_cannot_be_opened_is_not_seen(
    database: tuple[int, int], expected: object
) -> None:
    found, is_open = database
    rows: dict[str, Rows] = {"describe_catalog": [{"found": found, "is_open": is_open}]}
    session: Any = RecordedSession(rows, {"describe_table": "no database (911)"})
    tables = [WantedTable(SqlServerTable("other", "dbo", "Billing"), rights=("INSERT",))]
    seen: object

    try:
        seen = SQL_SERVER_TABLES.find(session, tables)
    except StoreError as error:
        seen = error.text

    assert seen == expected
