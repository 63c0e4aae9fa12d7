"""Transactions that PostgreSQL ends for a deadlock or a serialization failure are repeated."""

import pytest

from duesweep.core.errors import TransactionLostError
from support.endpoint import Endpoint
from support.faults.dead_sweeps import dispatch_without_settling

_LOST = ("40P01", "40001")


def _lose(endpoint: Endpoint, table: str, when: str, state: str, times: int) -> None:
    """The first `times` changes of a table's rows are given up. Sequences keep what they count."""
    endpoint.execute("CREATE SEQUENCE losses")
    endpoint.execute(
        "CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN"
        f" IF nextval('losses') <= {times} THEN"
        f" RAISE EXCEPTION 'given up' USING ERRCODE = '{state}'; END IF; RETURN NEW; END$$"
    )
    endpoint.execute(
        f"CREATE TRIGGER lose BEFORE {when} ON {table} FOR EACH STATEMENT EXECUTE FUNCTION lose()"
    )


@pytest.mark.parametrize("state", _LOST)
def test_batch_that_is_given_up_is_claimed_again(endpoint: Endpoint, state: str) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(7)
    context = endpoint.context(sweep__batch_rows=3)
    _lose(endpoint, '"Billing"', "INSERT", state, times=3)

    with context.store.open_driver() as session:
        run = dispatch_without_settling(context, session)
        _, done = session.progress(run.sweep_id)

    assert done == len(endpoint.queue_rows("Billing")) == 7
    assert endpoint.waiting() == []
    assert endpoint.attempts() == {}
    (end,) = endpoint.fetch("SELECT reason FROM duesweep_journal WHERE kind = 'slice'")
    assert end.reason is None


@pytest.mark.parametrize("state", _LOST)
def test_statement_of_the_driver_that_is_given_up_is_done_again(
    endpoint: Endpoint, state: str
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay()
    context = endpoint.context()
    _lose(endpoint, "duesweep_sweeps", "UPDATE OR INSERT OR DELETE", state, times=2)

    with context.store.open_driver() as session:
        run = session.open_sweep(session.horizon())
        endpoint.execute("SELECT setval('losses', 1)")
        assert session.close_sweep(run.sweep_id, abandoned=False, remaining=1)
        endpoint.execute("SELECT setval('losses', 1)")
        session.seal(run.sweep_id)
        endpoint.execute("SELECT setval('losses', 1)")
        session.delete_settled(run.sweep_id)

    assert endpoint.fetch("SELECT FROM duesweep_sweeps") == []


def test_statement_that_is_given_up_every_time_is_a_passing_fault(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    context = endpoint.context()
    _lose(endpoint, "duesweep_sweeps", "INSERT", "40P01", times=100)

    with context.store.open_driver() as session, pytest.raises(TransactionLostError) as failure:
        session.open_sweep(session.horizon())

    assert failure.value.transient
    (losses,) = endpoint.fetch("SELECT last_value FROM losses")
    assert losses.last_value == 6
