"""When the next message comes due, as a driver's session finds it for an idle sweep."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from duesweep.drivers.postgresql import statements as driver
from duesweep.stores.abilities import KnowsNextDue
from duesweep.testing.builders import delayed_row
from duesweep.testing.contract.stores import steps
from support.contract.store_subjects import DelayedTableUnderTest, OpenEndpoint
from support.sqlserver_server import SqlServerEndpoint

_HOUR = timedelta(hours=1)
_ZONES = ("UTC", "America/New_York", "Asia/Kolkata")


@pytest.mark.parametrize("zone", _ZONES)
@pytest.mark.parametrize("kind", ["postgresql", "sql-persistence"])
def test_postgresql_store(open_endpoint: OpenEndpoint, zone: str, kind: str) -> None:
    with open_endpoint(zone, f"s{uuid.uuid4().hex[:12]}") as endpoint:
        subject = DelayedTableUnderTest(endpoint.of_kind(kind).set_up("Billing"))
        # It never comes due.
        subject.load([delayed_row(due="infinity")])
        _check_next_due(subject)


@pytest.mark.parametrize("kind", ["sqlserver", "msmq", "sql-persistence"])
def test_sql_server_store(sqlserver_endpoint: SqlServerEndpoint, kind: str) -> None:
    endpoint = sqlserver_endpoint.of_kind(kind)
    _check_next_due(DelayedTableUnderTest(endpoint.set_up("Billing")))


@pytest.mark.parametrize("month", [1, 7])
@pytest.mark.parametrize("zone", _ZONES)
def test_instant_is_that_of_the_writers_zone_on_that_day(
    open_endpoint: OpenEndpoint, zone: str, month: int
) -> None:
    """In New York one of the two is on the other side of a clock change."""
    with open_endpoint(zone, f"s{uuid.uuid4().hex[:12]}") as endpoint:
        subject = DelayedTableUnderTest(endpoint.set_up("Billing"))
        noon = datetime(2099, month, 1, 12, tzinfo=UTC)
        # As NServiceBus stores it: UTC's clock, read in the writers' zone.
        text = f"{noon:%Y-%m-%d %H:%M}"
        due = endpoint.fetch(f"SELECT '{text}'::timestamp AT TIME ZONE '{zone}'")[0][0]
        subject.load([steps.row(subject, due=due)])

        with subject.store.open_messages() as messages:
            assert _next_due(subject) == messages.next_due() == noon


def test_index_on_due_is_used(open_endpoint: OpenEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_endpoint("UTC", f"s{uuid.uuid4().hex[:12]}") as endpoint:
        subject = DelayedTableUnderTest(endpoint.set_up("Billing"))
        endpoint.delay_many(2_000, due_in_seconds=3_600)
        endpoint.execute(f"ANALYZE {endpoint.delayed}")
        original = driver.statement
        monkeypatch.setattr(driver, "statement", lambda *of: f"EXPLAIN {original(*of)}")

        with subject.store.open_task() as session:
            statements = session.connection.named(subject.store.names)
            plan = statements.rows("next_due", since=subject.server_time(), zone="UTC")

    lines = [line for (line,) in plan]
    assert any("Index" in line and "_Due" in line for line in lines), lines
    assert not any("Seq Scan" in line for line in lines), lines


def _check_next_due(subject: DelayedTableUnderTest) -> None:
    assert _next_due(subject) is None
    now, instant = subject.now(), subject.server_time()

    subject.load([steps.row(subject, due=now - _HOUR)])
    assert _next_due(subject) is None

    subject.load([steps.row(subject, due=now + hours * _HOUR) for hours in (3, 2, 24 * 365 * 9)])
    found = _next_due(subject)

    assert found is not None
    assert found.utcoffset() == timedelta()
    assert abs(found - instant - 2 * _HOUR) < timedelta(minutes=1)


def _next_due(subject: DelayedTableUnderTest) -> datetime | None:
    with subject.store.open_driver() as session:
        assert isinstance(session, KnowsNextDue)
        return session.next_due(session.horizon())
