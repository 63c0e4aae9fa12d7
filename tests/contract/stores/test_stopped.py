"""Sweeps that are stopped before they dispatch anything."""

from typing import Any

import pytest

from duesweep.core.errors import ExitCode
from duesweep.stores.due import SqlDriver
from duesweep.sweep.job import Stop
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.sweeps import exit_code, run_sweep


def test_sweep_that_is_stopped_before_its_plan_makes_none(
    endpoint: Endpoint, ledger: LedgerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(7)
    stop = Stop()
    stop.ask()
    monkeypatch.setattr(SqlDriver, "plan", _must_not_plan)

    stopped = run_sweep(endpoint, stop=stop)

    assert (stopped.outcome, stopped.found, exit_code(stopped)) == ("stopped", 0, ExitCode.DONE)
    assert len(endpoint.waiting()) == 7
    assert [row.outcome for row in ledger.rows("sweeps")] == ["stopped"]


def test_sweep_that_is_stopped_while_it_plans_leaves_all_that_it_found(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(7)
    plan = SqlDriver.plan

    def stopped_meanwhile(session: SqlDriver, run: Any, slicing: Any) -> Any:
        session.stop_sweep(run.sweep_id, 0)
        return plan(session, run, slicing)

    monkeypatch.setattr(SqlDriver, "plan", stopped_meanwhile)

    stopped = run_sweep(endpoint)

    assert (stopped.outcome, stopped.found, stopped.left) == ("stopped", 7, 7)
    assert (stopped.reason, len(endpoint.waiting())) == (None, 7)


def test_stop_of_a_sweep_that_found_nothing_leaves_nothing(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    stop = Stop()
    stop.ask()

    done = run_sweep(endpoint, stop=stop)

    assert done.outcome == "done"


def _must_not_plan(*_: object) -> Any:
    raise AssertionError("it planned")
