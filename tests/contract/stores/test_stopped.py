"""Sweeps that are stopped, why messages failed, and the counts of a preview."""

from datetime import timedelta
from typing import Any

import pytest

from duesweep import Duesweep
from duesweep.core.errors import ExitCode, SweepClosedError
from duesweep.core.policy import Pause
from duesweep.core.result import exit_code_of
from duesweep.core.world import micros
from duesweep.operations.handover import Place, count_destinations
from duesweep.stores.sql_due import SqlDue
from duesweep.sweep.stop import Stop
from duesweep_testing.builders import delayed_row
from duesweep_testing.memory import MemoryStore
from duesweep_testing.memory_queue import MemoryQueue
from duesweep_testing.memory_state import MemoryCounter
from duesweep_testing.sweeps import context_of
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep


def test_sweep_that_is_stopped_before_its_plan_makes_none(
    endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(7)
    stop = Stop()
    stop.ask()

    stopped = run_sweep(endpoint, stop=stop)

    assert (stopped.outcome, stopped.found, exit_code_of(stopped)) == ("stopped", 0, ExitCode.DONE)
    assert len(endpoint.waiting()) == 7
    assert [row.outcome for row in ledger.rows("sweeps")] == ["stopped"]


def test_sweep_that_is_stopped_while_it_plans_leaves_all_that_it_found(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(7)
    plan = SqlDue.plan_at_once

    def stopped_meanwhile(due: SqlDue, *arguments: Any) -> Any:
        with endpoint.context().store.open_driver() as session:
            (sweep,) = session.journal.unsettled()
            session.sweeps.stop(sweep.sweep_id, 0)
        return plan(due, *arguments)

    monkeypatch.setattr(SqlDue, "plan_at_once", stopped_meanwhile)

    stopped = run_sweep(endpoint)

    assert (stopped.outcome, stopped.found, stopped.left) == ("stopped", 7, 7)
    assert (stopped.reason, len(endpoint.waiting())) == (None, 7)


def test_stop_of_a_sweep_that_found_nothing_leaves_nothing(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    stop = Stop()
    stop.ask()

    done = run_sweep(endpoint, stop=stop)

    assert done.outcome == "done"


NOWHERE = 'There is no queue table "public"."Nowhere'


def test_commonest_reasons_of_this_sweep_come_first_with_an_example(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    for name, messages in (("Nowhere1", 1), ("Nowhere2", 4), ("Nowhere3", 3)):
        endpoint.delay_many(messages, [name])
    for _ in range(2):
        endpoint.delay(headers="not JSON")
    endpoint.delay_many(5)

    first = run_sweep(endpoint)
    endpoint.delay()
    second = run_sweep(endpoint)

    assert (first.dispatched, first.failed) == (5, 10)
    assert [(f.count, f.destination) for f in first.failures] == [
        (4, "Nowhere2"),
        (3, "Nowhere3"),
        # Its headers say no destination.
        (2, None),
    ]
    assert first.failures[0].reason.startswith(NOWHERE + "2")
    assert "JSON" in first.failures[2].reason
    assert (second.dispatched, second.failed, second.failures) == (1, 0, ())


def test_long_reason_is_cut(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    # A trigger's words are as long as it likes.
    refuse = "RAISE EXCEPTION '%', repeat('no ', 9000);"
    endpoint.server.add_trigger("BEFORE INSERT", '"Billing"', refuse)
    endpoint.delay()

    (failure,) = run_sweep(endpoint).failures

    assert len(failure.reason) == 500


def test_abort_closes_what_is_under_way_and_its_tasks_claim_nothing_more(
    endpoint: Endpoint,
) -> None:
    key = endpoint.set_up("Billing").delay()
    context = endpoint.context()
    with context.store.open_driver() as session:
        run = session.sweeps.open(session.due.horizon())

        assert Duesweep(endpoint.config()).abort_handover().stopped == 1

        assert [one.is_closed for one in session.journal.unsettled()] == [True]
        with context.store.open_task() as task, pytest.raises(SweepClosedError), task.transaction():
            task.claim(run, [key])
        assert not session.sweeps.close(run.sweep_id, abandoned=False, remaining=0)
    assert endpoint.waiting() == [key]
    rows = endpoint.fetch(f"SELECT abandoned, remaining FROM {endpoint.own_table('sweeps')}")
    assert rows == [(True, 1)]


def test_abort_of_nothing_does_nothing(endpoint: Endpoint) -> None:
    config = endpoint.set_up("Billing").config()

    assert Duesweep(config).abort_handover().stopped == 0


def test_each_message_is_counted_once_and_none_is_moved_nor_what_is_paused_or_in_back_off() -> None:
    destinations = ["Billing"] * 10 + ["Shipping"] * 20 + ["Nowhere"] * 3 + ["Held"] * 2
    store = MemoryStore([delayed_row(destination) for destination in destinations])
    queue = MemoryQueue("Billing", "Shipping")
    store.pauses["Held"] = Pause("Held", store.now, None, "me", "it rests")
    failed = next(key for key, row in store.rows.items() if "Billing" in row.headers)
    store.attempts[failed] = MemoryCounter(1, micros(store.now + timedelta(hours=1)))

    found = count_destinations(context_of(store, queue))

    assert found == {
        Place("Billing"): 9,
        Place("Shipping"): 20,
        Place("Nowhere", problem="There is no queue Nowhere"): 3,
    }
    assert len(store.rows) == 35
    assert all(not sent for sent in queue.arrived.values())
