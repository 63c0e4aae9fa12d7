"""Asks the store what waits, and what is paused."""

from datetime import timedelta

from duesweep.operations.messages import open_look
from duesweep.page.facts import Step, Waiting
from duesweep.stores.base import Store

_HOURS = 24
_WEEK = timedelta(days=7)


def read_waiting(store: Store) -> Waiting:
    """What waits now. Raises `StoreError`, and `ConfigError` if the store cannot show messages."""
    with open_look(store) as session:
        now, pauses = session.horizon().server_time, session.pauses()
        hours = [now + timedelta(hours=number) for number in range(1, _HOURS + 1)]
        due, *by_hour, rest_of_week, later = session.count_waiting([now, *hours, now + _WEEK])
    day = sum(by_hour)
    return Waiting(
        now=now,
        due=due,
        hour=by_hour[0],
        day=day,
        week=day + rest_of_week,
        later=later,
        # By when each hour begins.
        hours=[
            Step(f"{end - timedelta(hours=1):%H:%M}", count)
            for end, count in zip(hours, by_hour, strict=True)
        ],
        pauses=pauses,
    )
