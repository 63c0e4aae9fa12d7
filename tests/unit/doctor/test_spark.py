"""Rules of the doctor on Spark and the ledger, and the question that tasks answer."""

import json
import uuid
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

import duesweep
from duesweep.config.adapters import Needs
from duesweep.core.errors import LedgerError
from duesweep.core.finding import Check, Finding, Severity, is_to_mend
from duesweep.operations.doctor import ledger_finding
from duesweep.operations.doctor_spark import (
    executor_findings,
    jvm_zone,
    question,
    speculation,
    task_tries,
)

OURS = {"host": "host-1", "python": "3.11", "duesweep": "0.1.0", "failures": {}}
FIRST, SECOND = uuid.uuid4(), uuid.uuid4()


@pytest.mark.parametrize(
    ("finding", "severity"),
    [
        (speculation("true"), Severity.FAULT),
        (speculation("false"), Severity.OK),
        (task_tries(1), Severity.WARNING),
        (task_tries(4), Severity.OK),
        (task_tries(None), Severity.SKIPPED),
        (jvm_zone(None), Severity.SKIPPED),
        (jvm_zone("Asia/Kolkata"), Severity.OK),
    ],
)
def test_setting_of_a_session_is_judged(finding: Finding, severity: Severity) -> None:
    assert finding.severity is severity


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {}),
        ({"duesweep": "0.0.9"}, {Check.EXECUTOR_VERSIONS: Severity.WARNING}),
        ({"python": "3.12"}, {Check.EXECUTOR_VERSIONS: Severity.WARNING}),
        (
            {"duesweep": None, "failures": {"duesweep": "none"}},
            {Check.EXECUTOR_DRIVERS: Severity.FAULT},
        ),
    ],
)
def test_difference_of_an_executor_is_one_finding(
    changes: dict[str, object], expected: dict[Check, Severity]
) -> None:
    findings = list(executor_findings(OURS | changes, "3.11", "0.1.0"))

    assert {f.check: f.severity for f in findings if is_to_mend(f)} == expected


class _Ledger:
    """At a root with this ledger, or an unreadable one."""

    root = "/ledger"

    def __init__(self, found: uuid.UUID | LedgerError | None) -> None:
        self._found = found

    def try_out(self) -> None:
        """It takes all."""

    def read(self) -> Any:
        if isinstance(self._found, LedgerError):
            raise self._found
        return SimpleNamespace(
            ledger_id=self._found,
            beyond=(),
            journals={},
            refuse_stray=lambda: None,
            refuse_incomplete=lambda _: None,
        )


class _Journal:
    """Bound to this ledger, as a store and its session."""

    source = "nsb"

    def __init__(self, bound: uuid.UUID | None) -> None:
        self._bound = bound
        self.binding = self

    def open_driver(self) -> Any:
        return nullcontext(self)

    def ledger(self) -> uuid.UUID | None:
        return self._bound

    def age(self) -> None:
        """It keeps none."""


def _judged(
    found: uuid.UUID | LedgerError | None,
    bound: uuid.UUID | None = None,
    unknown: str | None = None,
) -> Finding:
    ledger: Any = _Ledger(found)
    store: Any = _Journal(bound)
    return ledger_finding(ledger, store, unknown)


@pytest.mark.parametrize("found", [None, FIRST])
def test_journal_that_cannot_be_read_is_not_blamed_on_the_ledger(found: uuid.UUID | None) -> None:
    unknown = "The command `setup` has not run"

    finding = _judged(found, unknown=unknown)

    assert (finding.severity, finding.advice) == (Severity.SKIPPED, None)
    assert unknown in finding.found


@pytest.mark.parametrize(
    ("found", "bound", "severity"),
    [
        (None, None, Severity.OK),
        (FIRST, None, Severity.OK),
        (FIRST, FIRST, Severity.OK),
        (FIRST, SECOND, Severity.FAULT),
        (None, SECOND, Severity.FAULT),
        (LedgerError("unreadable", transient=False), None, Severity.FAULT),
    ],
)
def test_ledger_is_the_journals(
    found: uuid.UUID | LedgerError | None, bound: uuid.UUID | None, severity: Severity
) -> None:
    assert _judged(found, bound).severity == severity


def test_question_is_answered_with_what_cannot_be_loaded() -> None:
    needs = Needs(["json", "no_such_module"], ["/no/such/driver.so", "No such driver"])

    answer = json.loads(question(needs, 0)(0))

    assert set(answer["failures"]) == {"no_such_module", "/no/such/driver.so", "No such driver"}
    assert answer["failures"]["no_such_module"].startswith("ModuleNotFoundError: ")
    assert answer["host"]


@pytest.mark.usefixtures("odbc")
def test_question_finds_the_driver_that_came_with_duesweep() -> None:
    answer = json.loads(question(Needs(["pyodbc", "duesweep"], [""]), 0)(0))

    assert answer["failures"] == {}
    assert answer["duesweep"] == duesweep.__version__
