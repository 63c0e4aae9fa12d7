"""The slices of a plan, as a driver's session reads them without Spark."""

import uuid
from datetime import timedelta
from itertools import product

import pytest

from duesweep.claim_keys import read_claim_keys
from duesweep.core.policy import Slicing
from duesweep.testing.contract.stores import steps
from support.contract.store_subjects import DelayedTableUnderTest, OpenEndpoint
from support.sqlserver_server import SqlServerEndpoint

MESSAGES, SLICES = 25, 4


@pytest.mark.parametrize("kind", ["postgresql", "sql-persistence"])
def test_postgresql_store(open_endpoint: OpenEndpoint, kind: str) -> None:
    with open_endpoint("America/New_York", f"s{uuid.uuid4().hex[:12]}") as endpoint:
        found = endpoint if kind == "postgresql" else endpoint.of_kind(kind)
        _check_slices(DelayedTableUnderTest(found.set_up("Billing")))


@pytest.mark.parametrize("kind", ["sqlserver", "msmq", "sql-persistence"])
def test_sql_server_store(sqlserver_endpoint: SqlServerEndpoint, kind: str) -> None:
    _check_slices(DelayedTableUnderTest(sqlserver_endpoint.of_kind(kind).set_up("Billing")))


def _check_slices(subject: DelayedTableUnderTest) -> None:
    past = subject.now() - timedelta(hours=1)
    # Many have the same Due.
    dues = [past + timedelta(minutes=number // 10) for number in range(MESSAGES)]
    rows = subject.load([steps.row(subject, due=due) for due in dues])
    with subject.store.open_driver() as session:
        run = session.open_sweep(session.horizon())
        plan = session.plan(run, Slicing(SLICES))
        slices = [
            read_claim_keys(session.claim_keys(plan, number)) for number in range(len(plan.planned))
        ]

    assert [keys.total for keys in slices] == [len(keys.keys) for keys in slices] == [7, 7, 7, 4]
    assert plan.planned == (7, 7, 7, 4)
    assert all(keys.fault is None for keys in slices)
    read = [key for keys in slices for key in keys.keys]
    assert sorted(read) == sorted(subject.claim_keys(rows))
    assert all(size > 0 for keys in slices for size in keys.sizes)
    _check_numbers(subject)


def _check_numbers(subject: DelayedTableUnderTest) -> None:
    """The server counts slices as `Slicing` does, and makes all but the last equal."""
    with subject.store.open_driver() as session:
        run = session.open_sweep(session.horizon())
        for slicing in (Slicing(*numbers) for numbers in product((1, 3, 40), (1, 7), (2, 9, 25))):
            planned = session.plan(run, slicing).planned
            size = -(-MESSAGES // slicing.count(MESSAGES))
            assert planned == (*[size] * (MESSAGES // size), *filter(None, [MESSAGES % size]))
