"""The doctor's findings on a store that was not set up, or cannot be read; the order of findings,
ignored ones, and that the documentation knows every check.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from duesweep.config.adapters import Needs, Service
from duesweep.core.address import TableName
from duesweep.core.errors import ConfigError, StoreError
from duesweep.core.finding import (
    NOT_SET_UP,
    Check,
    Finding,
    Severity,
    fault,
    is_to_mend,
    ok,
    skipped,
    unreachable,
    warning,
    without,
    worst_first,
)
from duesweep.drivers.sqlserver.dsn import driver_library, odbc
from duesweep.drivers.sqlserver.errors import connect_errors
from duesweep.drivers.statements import FoundTable
from duesweep.operations.doctor import Examination, examine_services
from duesweep.stores.checks_postgresql import time_outs
from duesweep.stores.tables import (
    ExaminedTable,
    WantedTable,
    all_table_findings,
)

_WANTED = WantedTable("role", TableName("s", "t"), {}, ("SELECT",), "create it")
_FOUND = FoundTable(is_table=True, columns={})


class _Context:
    """Of a sweep whose store refuses it."""

    ledger_root = "catalog.ledger"

    def __init__(self, error: ConfigError) -> None:
        self.store = self
        self._error = error

    def open_driver(self) -> Any:
        raise self._error


def _examined(*findings: Finding, error: ConfigError | None = None) -> Any:
    place = Service("store.dsn", lambda: findings)
    context: Any = _Context(error or ConfigError("It is not there", advice="make it"))
    return examine_services(Examination(context, [place], [], Needs([])))


def test_what_setup_has_not_made_is_why_the_journal_is_not_known() -> None:
    _, unknown = _examined(fault(Check.SETUP, "store.dsn", "None is there", "Run it"))

    assert unknown == NOT_SET_UP


def test_refusal_that_nothing_else_explains_is_a_fault_of_its_own() -> None:
    findings, unknown = _examined(
        ok(Check.SETUP, "store.dsn", "It has run"),
        error=ConfigError("The source a is b", advice="set another store.name"),
    )

    (refusal,) = [f for f in findings if f.severity == Severity.FAULT]
    assert (refusal.check, refusal.advice) == (Check.SWEEP_START, "Set another store.name")
    assert unknown is not None


def _tables(*founds: FoundTable | None) -> Sequence[ExaminedTable]:
    journal = [
        (replace(_WANTED, table=TableName("s", f"j{n}"), is_journal=True), found)
        for n, found in enumerate(founds)
    ]
    return [(_WANTED, _FOUND), *journal]


@pytest.mark.parametrize(
    ("founds", "expected"),
    [
        ((_FOUND, _FOUND), []),
        ((None, None), [(Check.SETUP, "store.dsn")]),
        ((_FOUND, None), [(Check.TABLE_EXISTS, '"s"."j1"')]),
        ((), []),
    ],
)
def test_setup_has_not_run_where_none_of_its_tables_is_there(
    founds: tuple[FoundTable | None, ...], expected: list[tuple[Check, str]]
) -> None:
    findings = all_table_findings("store.dsn", _tables(*founds), lambda _: ())

    assert [(f.check, f.about) for f in findings if f.severity == Severity.FAULT] == expected


@pytest.mark.parametrize(
    ("milliseconds", "source", "severity"),
    [
        (60_000, "session", Severity.OK),
        (60_000, "client", Severity.OK),
        (0, "user", Severity.OK),
        (1_000, "user", Severity.WARNING),
        (1_000, "configuration file", Severity.WARNING),
    ],
)
def test_time_out_that_duesweeps_own_session_does_not_get_rid_of_is_a_warning(
    milliseconds: int, source: str, severity: Severity
) -> None:
    row = SimpleNamespace(
        name="statement_timeout",
        milliseconds=milliseconds,
        source=source,
        default_milliseconds=1_000,
        origin="this role",
    )

    finding = time_outs("store.dsn", [row])

    assert (finding.check, finding.severity) == (Check.SESSION_TIME_OUTS, severity)
    assert "statement_timeout 1,000 ms" in finding.found


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


@pytest.fixture(autouse=True)
def _looked_for_anew() -> Iterator[None]:
    driver_library.cache_clear()
    yield
    driver_library.cache_clear()


def _about(error: ConfigError | StoreError) -> tuple[str, str]:
    finding = unreachable("store.dsn", error)
    assert finding.found == error.text
    assert finding.advice
    return finding.check, finding.about


def _does_not_load() -> None:
    with connect_errors("db.example"):
        raise odbc().Error("01000", "[01000] [unixODBC][Driver Manager]Can't open lib '/x' (0)")


class _OfAnotherMachine:
    """The folder of a package whose driver is for another machine."""

    origin = "/nonexistent/__init__.py"


@pytest.mark.usefixtures("odbc")
@pytest.mark.parametrize(
    ("found", "use"),
    [
        pytest.param(None, driver_library, id="not installed"),
        pytest.param(_OfAnotherMachine, driver_library, id="not for this machine"),
        pytest.param(_OfAnotherMachine, _does_not_load, id="does not load"),
    ],
)
def test_driver_that_is_missing_is_told_as_such(
    monkeypatch: pytest.MonkeyPatch, found: object, use: Callable[[], object]
) -> None:
    monkeypatch.setattr("duesweep.drivers.sqlserver.dsn.find_spec", lambda _: found)

    with pytest.raises(ConfigError) as caught:
        use()

    assert _about(caught.value) == (Check.DRIVER_IMPORT, "store.dsn")


def test_server_that_does_not_answer_is_out_of_reach() -> None:
    error = StoreError("Cannot connect to SQL Server at db.example: gone", transient=True)

    assert _about(error) == (Check.SERVER_REACHABLE, "store.dsn")
