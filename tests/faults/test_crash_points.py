"""Each crash point of the trials is reached by a clean sweep: else trials would show nothing."""

import os
import re
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from duesweep.sweep.spark import SparkEngine
from support.endpoint import ON_BOTH_SERVERS, Endpoint
from support.rabbitmq.broker import Broker
from support.sweeps import run_sweep
from support.trials.armed import following
from support.trials.faults import STAGES
from support.trials.points import (
    DIE,
    HOLD,
    MOVED_FORM,
    NAMES,
    POINTS,
    RAISE,
    WHEN,
    DeathError,
    InjectedFaultError,
    Plan,
    reach,
)
from support.trials.table import points_table

_FIRST_LEDGER = set(STAGES["first ledger"])
_CAREFUL_FORM = {*chain(*MOVED_FORM.values()), "QueueSession.confirm", "QueueSession.commit"}
_FAILURES = {"LedgerTables.write(errors)", "LedgerTables.write(retries)"}
_TWO_ATTEMPTS = {"retry__max_attempts": 2, "retry__initial_seconds": 0}


def _points(names: Iterable[str]) -> set[str]:
    return {f"{when} {name}" for name in names for when in WHEN}


def _reached(endpoint: Endpoint[Any], **settings: object) -> set[str]:
    with following(Plan(str(endpoint.folder))) as reached:
        report = run_sweep(endpoint, **settings)
    assert (report.ledger_error, report.reason) == (None, None)
    return set(reached)


def _reached_after_failures(endpoint: Endpoint[Any], **settings: object) -> set[str]:
    """The points of a sweep in which messages arrive, fail and are exhausted."""
    endpoint.delay("Nowhere")
    _reached(endpoint, **_TWO_ATTEMPTS, **settings)
    endpoint.delay_many(2, ["Billing", "Nowhere"])
    return _reached(endpoint, **_TWO_ATTEMPTS, **settings)


@ON_BOTH_SERVERS
def test_first_sweep_reaches_each_point_of_the_moved_form_and_of_a_new_ledger(
    endpoint: Endpoint[Any],
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay()

    reached = _reached(endpoint)

    expected = set(NAMES) - _CAREFUL_FORM - _FAILURES
    if endpoint.kind != "postgresql":
        # `finish_moved` commits, in one request.
        expected -= {"COMMIT of TaskSession.transaction"}
    assert reached == _points(expected)


@ON_BOTH_SERVERS
def test_sweep_with_failures_reaches_each_point_of_the_careful_form(
    endpoint: Endpoint[Any],
) -> None:
    endpoint.set_up("Billing")

    reached = _reached_after_failures(endpoint)

    assert reached >= _points(set(NAMES) - MOVED_FORM.keys() - _FIRST_LEDGER)


def test_sweep_to_queues_on_their_own_connection_reaches_each_point(
    endpoint: Endpoint[Any],
) -> None:
    endpoint.set_up("Billing")

    reached = _reached_after_failures(endpoint, queues__default__dsn=endpoint.dsn)

    assert reached == _points(set(NAMES) - MOVED_FORM.keys() - _FIRST_LEDGER)


def test_sweep_to_rabbitmq_reaches_each_point(endpoint: Endpoint[Any], broker: Broker) -> None:
    endpoint.set_up()
    for name in ("Billing", endpoint.name):
        broker.create(name)

    reached = _reached_after_failures(
        endpoint, queues__default__kind="rabbitmq", queues__default__url=broker.url
    )

    assert reached == _points(set(NAMES) - MOVED_FORM.keys() - _FIRST_LEDGER)


@pytest.mark.usefixtures("points_in_workers")
def test_points_of_a_task_fire_in_a_worker_of_spark(
    spark: SparkSession, endpoint: Endpoint[Any], tmp_path: Path
) -> None:
    endpoint.set_up("Billing")
    for point, is_of_task in (
        ("after COMMIT of TaskSession.transaction", True),
        ("before Sweeps.close", False),
    ):
        endpoint.delay()
        folder = tmp_path / point
        folder.mkdir()
        plan = Plan(str(folder), point, action=HOLD)
        # No harm is waited for.
        plan.resume.touch()

        with following(plan):
            report = run_sweep(endpoint, SparkEngine(spark))

        assert (report.engine, report.dispatched) == ("spark", 1)
        assert plan.fired_point == point
        assert (plan.fired_pid != os.getpid()) is is_of_task


@pytest.mark.parametrize("action", [RAISE, DIE])
def test_armed_point_fires_at_its_occurrence_and_says_where(tmp_path: Path, action: str) -> None:
    for point in POINTS:
        folder = tmp_path / point
        folder.mkdir()
        plan = Plan(str(folder), point, occurrence=2, action=action)
        when, _, name = point.partition(" ")
        with following(plan):
            reach(when, name)
            assert plan.fired_point is None
            with pytest.raises((InjectedFaultError, DeathError), match=re.escape(point)):
                reach(when, name)
            assert plan.fired_point == point
            reach(when, name)


@pytest.mark.parametrize(
    ("moved", "careful"), [(moved, each) for moved, of in MOVED_FORM.items() for each in of]
)
def test_point_of_the_careful_form_fires_in_the_moved_form_too(
    tmp_path: Path, moved: str, careful: str
) -> None:
    plan = Plan(str(tmp_path), f"after {careful}", action=RAISE)

    with following(plan), pytest.raises(InjectedFaultError):
        reach("after", moved)

    assert plan.fired_point == f"after {moved}"


def test_point_that_does_not_exist_cannot_be_armed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no crash point 'after claim'") as refused:
        Plan(str(tmp_path), "after claim")

    assert str(refused.value).splitlines()[1:] == [f"  {point}" for point in POINTS]


def test_trials_do_harm_at_each_point() -> None:
    of_trials = {name for names in STAGES.values() for name in names}

    assert of_trials == set(NAMES) - MOVED_FORM.keys()


def test_table_counts_how_often_each_point_fired() -> None:
    claim, create = "TaskSession.claim", "LedgerTables.create(errors)"

    _, _, *rows = points_table(
        [f"before {claim}", f"after {create}", f"before {claim}"]
    ).splitlines()

    never = set(NAMES) - {claim, create}
    expected = {f"| {claim} | 2 | 0 |", f"| {create} | 0 | 1 |"}
    assert set(rows) == expected | {f"| {name} | 0 | 0 |" for name in never}
