"""A handover or a sweep that runs elsewhere is stopped from outside."""

import pytest

from duesweep.core.errors import SweepClosedError
from duesweep.handover import abort
from support.endpoint import Endpoint


def test_abort_closes_what_is_under_way_and_its_tasks_claim_nothing_more(
    endpoint: Endpoint,
) -> None:
    key = endpoint.set_up("Billing").delay()
    context = endpoint.context()
    with context.store.open_driver() as session:
        run = session.open_sweep(session.horizon())

        assert abort(context) == 1

        assert [one.is_closed for one in session.unsettled()] == [True]
        with context.store.open_task() as task, pytest.raises(SweepClosedError), task.transaction():
            task.claim(run, [key])
        assert not session.close_sweep(run.sweep_id, abandoned=False, remaining=0)
    assert endpoint.waiting() == [key]
    rows = endpoint.fetch(f"SELECT abandoned, remaining FROM {endpoint.own_table('sweeps')}")
    assert rows == [(True, 1)]


def test_abort_of_nothing_does_nothing(endpoint: Endpoint) -> None:
    context = endpoint.set_up("Billing").context()

    assert abort(context) == 0
