"""How far a driver's session looks: ahead of now, and from a cut-off on."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from duesweep.core.policy import Slicing
from duesweep.core.store_clock import StoreClock
from duesweep.stores.base import DriverSession
from duesweep.stores.values import Horizon
from duesweep.testing.contract import StoreUnderTest
from duesweep.testing.contract.stores import steps
from duesweep.tombstone import micros
from support.contract.store_subjects import DelayedTableUnderTest, OpenEndpoint
from support.sqlserver_server import SqlServerEndpoint

_HOUR = timedelta(hours=1)
_ZONES = ("UTC", "America/New_York", "Asia/Kolkata")


@pytest.mark.parametrize("zone", _ZONES)
@pytest.mark.parametrize("kind", ["postgresql", "sql-persistence"])
def test_postgresql_store(open_endpoint: OpenEndpoint, zone: str, kind: str) -> None:
    with open_endpoint(zone, f"s{uuid.uuid4().hex[:12]}") as endpoint:
        if kind == "postgresql":
            _check_reach(DelayedTableUnderTest(endpoint.set_up("Billing")))
        else:
            _check_reach(
                DelayedTableUnderTest(endpoint.of_kind("sql-persistence").set_up("Billing"))
            )


@pytest.mark.parametrize("kind", ["sqlserver", "msmq", "sql-persistence"])
def test_sql_server_store(sqlserver_endpoint: SqlServerEndpoint, kind: str) -> None:
    endpoint = sqlserver_endpoint.of_kind(kind)
    _check_reach(DelayedTableUnderTest(endpoint.set_up("Billing")))


@pytest.mark.parametrize("zone", _ZONES)
def test_early_message_waits_until_its_writers_clock_shows_its_due(
    open_endpoint: OpenEndpoint, zone: str
) -> None:
    """Stored in July for next July by writers in New York, it is due at the same time of UTC's day,
    whatever is to be seen on their clocks today.
    """
    with open_endpoint(zone, f"s{uuid.uuid4().hex[:12]}") as endpoint:
        subject = DelayedTableUnderTest(endpoint.set_up("Billing"))
        noons = [datetime(2027, month, 1, 12, tzinfo=UTC) for month in (1, 7)]
        # As NServiceBus stores them: UTC's clock, read in the writers' zone.
        dues = [
            endpoint.fetch(f"SELECT '{noon:%Y-%m-%d %H:%M}'::timestamp AT TIME ZONE '{zone}'")[0][0]
            for noon in noons
        ]
        rows = subject.load([steps.row(subject, due=due) for due in dues])
        with subject.store.open_driver() as session:
            run = session.open_sweep(session.horizon().looking_ahead(24 * 3_650 * _HOUR))
        with subject.store.open_task() as task, task.transaction():
            claim = task.claim(run, [row.key for row in rows])

        clock = StoreClock(claim.server_us)
        left = [clock.microseconds_until(m) for m in claim.messages]
        assert left == [micros(noon) - claim.server_us for noon in noons]


def _check_reach(subject: StoreUnderTest) -> None:
    now = subject.now()
    subject.load(
        [steps.row(subject, due=now + hours * _HOUR) for hours in (-1, 1, 3, 24 * 365 * 9)]
    )
    with subject.store.open_driver() as session:
        horizon = session.horizon()
        found = dict(_found(session, horizon))

    assert found == {
        "now": 1,
        "two hours": 2,
        "two hours, cut off": 1,
        "ten years, cut off": 2,
        "ten years": 4,
    }
    with subject.store.open_driver() as session:
        assert session.count_stored(None) == 4
        since = horizon.cut_off(horizon.server_time + 2 * _HOUR).since
        assert session.count_stored(since) == 2
        assert not session.sweeps_under_way()


def _found(session: DriverSession, horizon: Horizon) -> Iterator[tuple[str, int]]:
    """What each reach finds, counted and planned alike."""
    cut = horizon.cut_off(horizon.server_time + 2 * _HOUR)
    reaches = {
        "now": horizon,
        "two hours": horizon.looking_ahead(2 * _HOUR),
        "two hours, cut off": horizon.cut_off(horizon.server_time).looking_ahead(2 * _HOUR),
        "ten years, cut off": cut.looking_ahead(24 * 3_650 * _HOUR),
        "ten years": horizon.looking_ahead(24 * 3_650 * _HOUR),
    }
    for name, reach in reaches.items():
        run = session.open_sweep(reach)
        planned = session.plan(run, Slicing(2)).found
        assert session.count_pending(reach) == planned
        session.close_sweep(run.sweep_id, abandoned=False, remaining=0)
        yield name, planned
