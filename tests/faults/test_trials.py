"""Seeded trials: a fault of each sort, and the ledger is right. `bench/faults` runs hundreds."""

import os
from collections.abc import Iterator

import pytest

from support.trials.conduct import run_trial
from support.trials.faults import CLOCKS, CROWD, LEDGER_HARMS
from support.trials.services import Services, can_mount, faketime
from support.trials.trial import Trial, draw
from support.trials.world import BROKER, PLACES, POOLED

_WITHOUT_SQL_SERVER = PLACES[:3]
# One of each sort; the tests' names say which. Other faults would change the meaning of a seed.
_SEEDS = (4, 12, 20, 44, 50, 421, 1062, 157, 69, 73, 272, 1923, 1379, 556)
# Seeds 125 and 763 kill the JVM.
_LONG_SEEDS = (125, 763, 312, 2196)
_POOLED_SEEDS = (8, 44)


def _trials() -> Iterator[object]:
    for seed in (*_SEEDS, *_LONG_SEEDS):
        trial = draw(seed, _WITHOUT_SQL_SERVER)
        marks = [pytest.mark.long] * (seed in _LONG_SEEDS)
        if trial.place == BROKER:
            marks.append(pytest.mark.xdist_group("rabbitmq"))
        yield pytest.param(trial, id=str(trial), marks=marks)
    for seed in _POOLED_SEEDS:
        trial = draw(seed, (POOLED,))
        yield pytest.param(trial, id=str(trial))


def _skip_what_cannot_be(trial: Trial) -> None:
    lacks = None
    if trial.fault.harm in CLOCKS and faketime() is None:
        lacks = "libfaketime is not installed"
    if trial.fault.harm in LEDGER_HARMS and not can_mount():
        lacks = "no disk can be mounted"
        if os.environ.get("CI"):
            pytest.fail(lacks)
    if lacks is not None:
        pytest.skip(lacks)


@pytest.mark.parametrize("trial", list(_trials()))
def test_nothing_is_lost_and_the_ledger_is_true_after_a_fault(
    trial: Trial, services: Services, request: pytest.FixtureRequest
) -> None:
    _skip_what_cannot_be(trial)
    if trial.place == BROKER:
        request.getfixturevalue("broker_server")

    result = run_trial(trial, services)

    assert result.is_good, result
    # Each sweep of a crowd may have ended before it came to its point.
    if trial.fault.harm != CROWD:
        assert bool(result.fired) is (trial.point is not None)
