"""Simulated sweeps: `proof/run simulate` runs many more of them."""

from dataclasses import replace

import pytest

from support.simulation.rules import RULES, settings_for
from support.simulation.run import Settings, Simulation, shrink

# A minute of them, with the rules below.
_RUNS = 70
# Enough to notice each rule that is missing; most need ten.
_RUNS_OF_A_RULE = 1_000


@pytest.mark.parametrize("first", range(0, _RUNS, 35))
def test_no_promise_is_broken_whatever_fails_in_which_order(first: int) -> None:
    for seed in range(first, first + 35):
        result = Simulation(Settings.of(seed)).run()

        assert result.broken is None, result.settings


# The ledger is asked in each of its runs, which takes a minute in all.
_LONG = "a command that puts messages back runs alone, and after all others"


@pytest.mark.parametrize(
    "rule",
    [pytest.param(each, marks=pytest.mark.long if each == _LONG else ()) for each in RULES],
)
def test_simulation_notices_a_rule_that_is_missing(rule: str) -> None:
    with RULES[rule]():
        results = (Simulation(settings_for(rule, seed)).run() for seed in range(_RUNS_OF_A_RULE))

        assert any(result.broken is not None for result in results)


# With seed 12, an operator's transaction is lost, and begins again after a wait.
@pytest.mark.parametrize(
    "settings",
    [replace(Settings.of(3), roles=("operator", "weather", "mover")), Settings.of(12)],
    ids=["3", "12"],
)
def test_seed_decides_each_step(settings: Settings) -> None:
    one, other = (Simulation(settings, keeps_trace=True).run() for _ in range(2))

    assert one.trace == other.trace
    assert one.faults == other.faults
    assert len(one.trace) > 100


def test_failed_run_is_cut_to_what_it_needs() -> None:
    with RULES["each batch is journalled"]():
        failed = Simulation(Settings.of(1)).run()
        small = shrink(failed)

        assert small.broken is not None
        assert Simulation(small.settings).run().broken == small.broken
    assert small.settings.messages < failed.settings.messages
    assert not small.faults
