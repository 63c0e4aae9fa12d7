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
from duesweep.core.finding import Finding, Severity
from duesweep.operations.doctor import ledger_finding
from duesweep.operations.doctor_spark import question
from duesweep.stores.binding import Bound

FIRST, SECOND = uuid.uuid4(), uuid.uuid4()


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

    def read(self) -> Bound:
        return Bound(self._bound)


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

    host, failures = json.loads(question(needs, duesweep.__version__, 0)(0))

    assert set(failures) == {"no_such_module", "/no/such/driver.so", "No such driver"}
    assert failures["no_such_module"].startswith("ModuleNotFoundError: ")
    assert host


@pytest.mark.usefixtures("odbc")
def test_question_finds_the_driver_that_came_with_duesweep() -> None:
    needs = Needs(["pyodbc", "duesweep"], [""])

    _, failures = json.loads(question(needs, duesweep.__version__, 0)(0))
    _, other = json.loads(question(needs, "0.0.9", 0)(0))

    assert failures == {}
    told = f"it is {duesweep.__version__}, and the driver has 0.0.9"
    assert other == {"duesweep": f"LookupError: {told}"}
