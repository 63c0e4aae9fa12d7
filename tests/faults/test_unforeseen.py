"""An error that nobody foresaw: it ends one slice, and the sweep says so."""

from collections.abc import Iterator, Sequence

import pytest

from duesweep.core.errors import ExitCode
from duesweep.core.policy import Slicing
from duesweep.stores.base import Slices, SweepRun
from duesweep.stores.due import SqlDriver
from duesweep.sweep.batch import BatchEnd, Batches, Form
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.sweeps import exit_code, run_sweep


def test_other_slices_go_on_and_the_sweep_is_closed_with_the_reason(
    endpoint: Endpoint, ledger: LedgerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.set_up("Billing")
    keys = endpoint.delay_many(30)
    plan, forms = SqlDriver.plan, Batches.forms

    def plan_three(session: SqlDriver, run: SweepRun, _: Slicing) -> Slices:
        return plan(session, run, Slicing(3))

    def forms_with_a_defect(batches: Batches) -> Iterator[Form]:
        form = next(forms(batches))

        def run(batch: Sequence[str]) -> BatchEnd | None:
            if keys[0] in batch:
                raise ZeroDivisionError("a defect")
            return form(batch)

        yield run

    with monkeypatch.context() as patch:
        patch.setattr(SqlDriver, "plan", plan_three)
        patch.setattr(Batches, "forms", forms_with_a_defect)
        cut = run_sweep(endpoint)

    assert (cut.outcome, exit_code(cut)) == ("incomplete", ExitCode.WORK_LEFT)
    assert (cut.found, cut.dispatched, cut.left) == (30, 20, 10)
    assert cut.reason == (
        "An unforeseen error ended a slice: ZeroDivisionError: a defect; please report this, with "
        "what the log says"
    )
    rest = run_sweep(endpoint)
    assert (rest.outcome, rest.dispatched) == ("done", 10)
    assert ledger.count("tombstones") == len(endpoint.queue_rows("Billing")) == 30
