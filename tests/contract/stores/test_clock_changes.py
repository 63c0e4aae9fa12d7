"""When messages are due, and how late they are, if the writers' clocks change before or after.

If a change has to be near, a zone of the server's own making stands for the two days in a year
on which real zones have one. It is west of UTC, 5 hours in winter, 4 in summer.
"""

from datetime import UTC, datetime, timedelta

import pytest

from duesweep.core.errors import QueueNotFoundError
from duesweep.core.message import Exhausted
from duesweep.core.world import StoreClock, late_ms, micros
from duesweep_testing.contract.stores import steps
from duesweep_testing.journal import ExhaustedEntry
from duesweep_transport.messages import one_message_at_a_time
from support.contract.store_subjects import DelayedTableUnderTest, OpenEndpoint
from support.endpoint import Endpoint

_HOUR = timedelta(hours=1)


def _going_back(change: datetime) -> str:
    """A POSIX time zone whose clocks show this hour of a day twice."""
    day = change.timetuple().tm_yday - 1
    return f"AAA5BBB4,{(day + 180) % 365}/2,{day}/{change.hour + 1}"


def _stored(endpoint: Endpoint, due: datetime) -> datetime:
    """What NServiceBus stores: UTC's clock at `due`, read in the writers' zone."""
    stored: datetime = endpoint.fetch(f"SELECT '{due:%Y-%m-%d %H:%M:%S}'::timestamptz")[0][0]
    return stored


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_instants_are_those_of_the_writers_zone_on_their_day(
    open_endpoint: OpenEndpoint, zone: str
) -> None:
    """In New York, one of the two is on the other side of a clock change, whatever day it is."""
    now = datetime.now(UTC)
    noons = [datetime(now.year + 2, month, 1, 12, tzinfo=UTC) for month in (7, 1)]
    with open_endpoint(zone) as endpoint:
        subject = DelayedTableUnderTest(endpoint.set_up("Billing"))
        rows = []
        for noon in noons:
            rows += subject.load([steps.row(subject, due=_stored(endpoint, noon))])
            with (
                subject.store.open_driver() as driver,
                one_message_at_a_time(subject.store) as messages,
            ):
                (upcoming, at) = driver.due.next_due(driver.due.horizon()), messages.next_due()
                assert upcoming.due == at == noon
        with subject.store.open_driver() as driver:
            run = driver.sweeps.open(driver.due.horizon().looking_ahead(24 * 3_650 * _HOUR))
            with steps.batch(subject) as session:
                claim = steps.claim(subject, session, run, *rows)

    assert [message.key for message in claim.messages] == [row.key for row in reversed(rows)]
    assert [message.instant_us for message in claim.messages] == [
        micros(noon) for noon in reversed(noons)
    ]
    clock = StoreClock(claim.server_us)
    left_us = [clock.microseconds_until(message) for message in claim.messages]
    assert left_us == [micros(noon) - claim.server_us for noon in reversed(noons)]


def test_message_stored_for_a_time_before_a_clock_change_is_as_late_as_it_is(
    open_endpoint: OpenEndpoint,
) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    with open_endpoint(_going_back(now - 26 * _HOUR)) as endpoint:
        subject = DelayedTableUnderTest(endpoint.set_up("Billing"))
        due = now - 48 * _HOUR
        run, [row] = steps.load(subject, steps.row(subject, due=_stored(endpoint, due)))
        assert subject.now() - row.due - 48 * _HOUR > _HOUR / 2, "no clock has changed"

        with steps.batch(subject) as session:
            claim = steps.claim(subject, session, run, row)
            (claimed,) = claim.messages
            gone = Exhausted(claimed, QueueNotFoundError("There is no queue"), None)
            session.finish(run, 0, [gone], claim.server_us)

        journalled, _ = subject.journal(run)

    assert isinstance(journalled, ExhaustedEntry)
    assert journalled.due_us == claimed.instant_us == micros(due)
    late = late_ms(claimed.instant_us, claim.server_us)
    assert late is not None
    assert 48 <= late / 3_600_000 < 48.1


def test_message_that_is_due_while_clocks_go_back_is_not_due_later_than_now(
    open_endpoint: OpenEndpoint,
) -> None:
    now = datetime.now(UTC)
    with open_endpoint(_going_back(now)) as endpoint:
        subject = DelayedTableUnderTest(endpoint.set_up("Billing"))
        # The last second before the change: the clock shows the end of an hour, and then that hour
        # again. So the transport takes it for due, though UTC's clock is not there yet.
        hour = now.replace(minute=0, second=0, microsecond=0)
        change = _stored(endpoint, hour)
        run, [row] = steps.load(subject, steps.row(subject, due=change - timedelta(seconds=1)))

        with steps.batch(subject) as session:
            claim = steps.claim(subject, session, run, row)

    (claimed,) = claim.messages
    assert claimed.due_us == row.due_us
    # The first is a later one, but in the hour's last second.
    shown = hour + _HOUR - timedelta(seconds=1)
    assert claimed.instant_us == micros(min(shown, run.horizon.server_time))
    assert StoreClock(claim.server_us).seconds_until(claimed) == 0
