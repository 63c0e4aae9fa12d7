"""Work for many endpoints at once, and when a database is given up."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from duesweep.core.errors import QueueError, StoreError, TransactionLostError
from duesweep.fleet.members import Failure, Job, side_by_side

_LOST = StoreError("no server answers", transient=True)


def _job(name: str, work: Callable[[], str], server: str = "one") -> Job[str]:
    member: Any = SimpleNamespace(source=name, server=server)
    return Job(member, work)


def _failing(error: Exception) -> Callable[[], str]:
    def work() -> str:
        raise error

    return work


def test_rest_of_a_database_that_is_lost_is_not_tried_and_others_are() -> None:
    lost = [_job(str(number), _failing(_LOST)) for number in range(40)]
    others = [_job("other", lambda: "done", "another") for _ in range(10)]

    results = side_by_side([*lost, *others])

    assert results[40:] == ["done"] * 10
    failures = [each for each in results[:40] if isinstance(each, Failure)]
    assert len(failures) == 40
    untried = [each for each in failures if "was not tried" in str(each.error)]
    assert len(untried) >= 30


@pytest.mark.parametrize(
    "error",
    [
        TransactionLostError("a deadlock"),
        QueueError("the broker is away", transient=True),
        StoreError("no right to that table", transient=False),
    ],
    ids=["deadlock", "broker", "rights"],
)
def test_database_that_answers_is_not_given_up(error: Exception) -> None:
    jobs = [_job(str(number), _failing(error)) for number in range(20)]
    jobs.append(_job("last", lambda: "done"))

    *failures, last = side_by_side(jobs)

    assert last == "done"
    assert all("was not tried" not in str(each.error) for each in failures)  # type: ignore[union-attr]
