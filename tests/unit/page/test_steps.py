"""How figures get into the steps of a plot."""

from datetime import UTC, datetime, timedelta

from duesweep.page.facts import SweepLine
from duesweep.page.plots import bars
from duesweep.page.steps import TimeSteps, lateness_steps

_NOW = datetime(2026, 11, 23, 12, 30, tzinfo=UTC)


def _sweep(hours_ago: float, found: int, dispatched: int) -> SweepLine:
    start = _NOW - timedelta(hours=hours_ago)
    return SweepLine(start, 1.0, "done", found, dispatched, 0, 0, 0, 5, None)


def test_lateness_counts_each_message_in_the_first_step_that_is_long_enough() -> None:
    steps = lateness_steps([0, 1_000, 1_001, None, 59_999, 86_400_000, 86_400_001])

    assert [(step.label, step.messages) for step in steps if step.messages] == [
        ("1 s", 2),
        ("10 s", 1),
        ("1 min", 1),
        ("1 d", 1),
        ("more", 1),
    ]


def test_week_has_steps_of_three_hours_that_end_now() -> None:
    steps = TimeSteps(_NOW - timedelta(days=7), _NOW)
    sweeps = [_sweep(0.1, 9, 8), _sweep(2.9, 20, 19), _sweep(3.1, 5, 4), _sweep(7 * 24, 1, 1)]

    rate, backlog = steps.rate(sweeps), steps.backlog(sweeps)

    assert len(rate) == len(backlog) == 56
    assert [step.messages for step in rate[-2:]] == [4, 27]
    assert [step.messages for step in backlog[-2:]] == [5, 20]
    assert (rate[0].messages, rate[-1].label) == (1, "23 Nov 09:30")
    assert sum(step.messages for step in rate) == 32


def test_sweeps_outside_the_time_are_in_no_step() -> None:
    steps = TimeSteps(_NOW - timedelta(days=1), _NOW)

    assert sum(step.messages for step in steps.rate([_sweep(25, 3, 3), _sweep(-1, 3, 3)])) == 0


def test_plot_has_a_bar_for_each_step_and_nothing_that_runs() -> None:
    svg = bars(lateness_steps([1, 2_000]))

    assert svg.count("<rect") >= 7
    assert "<script" not in svg
    assert "var(--bar)" in svg
