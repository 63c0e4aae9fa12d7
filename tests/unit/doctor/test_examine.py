"""The doctor's findings on a store that was not set up, or cannot be read; the order of findings,
ignored ones, and that the documentation knows every check.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

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
from duesweep.operations.doctor import examine_services


class _Context:
    """Of a sweep whose store refuses it."""

    ledger_root = "catalog.ledger"

    def __init__(self, error: ConfigError) -> None:
        self.store = self
        self._error = error

    def open_driver(self) -> Any:
        raise self._error


def _examined(*findings: Finding, error: ConfigError | None = None) -> Any:
    context: Any = _Context(error or ConfigError("It is not there", advice="make it"))
    return examine_services(context, [("store.dsn", findings)])


def test_what_setup_has_not_made_is_why_the_journal_is_not_known() -> None:
    _, unknown = _examined(fault(Check.SETUP, "store.dsn", "None is there", "Run it"))

    assert unknown == NOT_SET_UP


def test_refusal_that_nothing_else_explains_is_a_fault_of_its_own() -> None:
    findings, unknown = _examined(
        ok(Check.SERVER_REACHABLE, "store.dsn", "It answers"),
        error=ConfigError("The source a is b", advice="set another store.name"),
    )

    (refusal,) = [f for f in findings if f.severity == Severity.FAULT]
    assert (refusal.check, refusal.advice) == (Check.SWEEP_START, "set another store.name")
    assert unknown is not None


FOUND = [
    ok(Check.DURABILITY, "store.dsn", "fine"),
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
        Check.DURABILITY,
    ]


def test_faults_and_warnings_are_to_mend() -> None:
    assert [is_to_mend(finding) for finding in FOUND] == [False, False, True, True, True]


def test_ignored_checks_keep_what_was_found() -> None:
    left = without(FOUND, ["table-index", "durability"])

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
