"""The metrics after a run."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from duesweep import __version__
from duesweep.operations.look import StillDue
from duesweep.report.metrics import (
    METRICS,
    MOST_NAMED,
    OF_WATCHERS,
    OTHERS,
    Figures,
    Sample,
    figures_after,
)
from support.reports import AT, FAILED, NOTHING, UNWRITTEN, open_breaker, report, run

_UNITS = {
    "dispatched_messages_total": "{message}",
    "dispatched_bytes_total": "By",
    "late_runs_total": "{run}",
    "oldest_due_age_seconds": "s",
    "open_breakers": "{breaker}",
    "run_exit_code": "1",
}
_LATER = AT + timedelta(minutes=1)


def _of(figures: Figures, *names: str) -> list[float | None]:
    return [figures.get(Sample(f"duesweep_{name}")) for name in names]


def test_first_run_tells_every_metric() -> None:
    breakers = (open_breaker(), open_breaker("closed"))
    told = figures_after({}, run(report=report(breakers=breakers, is_late=True)))

    assert {name: value for (name, of), value in told.items() if not of} == {
        "duesweep_dispatched_messages_total": 7,
        "duesweep_failed_messages_total": 2,
        "duesweep_exhausted_messages_total": 1,
        "duesweep_dispatched_bytes_total": 91,
        "duesweep_runs_total": 1,
        "duesweep_late_runs_total": 1,
        "duesweep_due_messages": 4,
        "duesweep_oldest_due_age_seconds": 12.5,
        "duesweep_left_messages": 3,
        "duesweep_skipped_messages": 0,
        "duesweep_lateness_p50_seconds": 0.25,
        "duesweep_lateness_p95_seconds": 1.5,
        "duesweep_lateness_max_seconds": 61,
        "duesweep_ledger_behind": 0,
        "duesweep_run_duration_seconds": 1.25,
        "duesweep_run_exit_code": 0,
        "duesweep_last_run_timestamp_seconds": AT.timestamp(),
        "duesweep_last_success_timestamp_seconds": AT.timestamp(),
    }
    assert {sample: value for sample, value in told.items() if sample.of} == {
        ("duesweep_open_breakers", "Billing"): 1,
        ("duesweep_build_info", __version__): 1,
    }


def test_counters_by_destination_go_on_and_name_no_more_than_some() -> None:
    counts = Counter({(f"Q{number}", "dispatched"): 100 + number for number in range(100)})
    counts["Q3", "failed"] = 2
    first = run(report=report(by_destination=counts))
    second = run(report=report(by_destination=Counter({("Q0", "dispatched"): 5})))

    figures = figures_after(figures_after(figures_after({}, first), second), run(report=None))

    name = "duesweep_destination_dispatched_messages_total"
    dispatched = {of: value for (metric, of), value in figures.items() if metric == name}
    # The ones with the most messages of the first run.
    named = {f"Q{number}" for number in range(100 - MOST_NAMED, 100)}
    assert dispatched.keys() == named | {OTHERS}
    assert dispatched["Q99"] == 199
    assert dispatched[OTHERS] == sum(100 + number for number in range(100 - MOST_NAMED)) + 5
    failed = Sample("duesweep_destination_failed_messages_total", "Q3")
    assert [sample for sample in figures if sample.metric == failed.metric] == [failed]


def test_counters_go_on_from_the_former_run_and_gauges_do_not() -> None:
    after = figures_after(figures_after({}, run()), run(report=report(dispatched=1, left=0)))

    assert _of(after, "dispatched_messages_total", "runs_total", "left_messages") == [8, 2, 0]


@pytest.mark.parametrize("exit_code", [1, 2, 3, 4, 5])
def test_run_that_failed_keeps_the_time_of_the_last_success(exit_code: int) -> None:
    after = figures_after(figures_after({}, run()), run(exit_code, at=_LATER))

    assert _of(after, "run_exit_code") == [exit_code]
    assert _of(after, "last_run_timestamp_seconds", "last_success_timestamp_seconds") == [
        _LATER.timestamp(),
        AT.timestamp(),
    ]


def test_run_that_failed_before_any_success_tells_of_none() -> None:
    assert _of(figures_after({}, run(4)), "last_success_timestamp_seconds") == [None]


def test_error_leaves_out_what_nobody_knows() -> None:
    after = figures_after(figures_after({}, run()), run(4, report=None, due=None))

    unknown = ("due_messages", "oldest_due_age_seconds", "left_messages")
    assert _of(after, *unknown, "lateness_max_seconds") == [None] * 4
    assert _of(after, "dispatched_messages_total", "runs_total") == [7, 2]


def test_run_without_work_tells_of_nothing_left_and_of_no_lateness() -> None:
    after = figures_after({}, run(report=None, due=StillDue(0, 0.0)))

    assert _of(after, "due_messages", "oldest_due_age_seconds", "left_messages") == [0, 0, 0]
    assert _of(after, "lateness_max_seconds") == [None]


def test_only_breakers_that_are_not_closed_are_told_by_destination_until_they_close() -> None:
    breakers = [
        replace(open_breaker(state), name=name)
        for state, name in (("open", "A"), ("triggered", 'B\n"'), ("closed", "C"))
    ]
    after = figures_after({}, run(report=report(breakers=breakers)))

    def told(figures: Figures) -> set[str]:
        return {sample.of for sample in figures if sample.metric == "duesweep_open_breakers"}

    assert told(after) == {"A", 'B\\n"'}
    assert told(figures_after(after, run(report=None))) == set()


def test_ledger_that_cannot_be_written_is_told_until_it_is_and_while_nobody_knows() -> None:
    told = []
    figures: Figures = {}
    for each in (run(), UNWRITTEN, FAILED, NOTHING):
        figures = figures_after(figures, each)
        told += _of(figures, "ledger_behind")

    assert told == [0, 1, 1, 0]


def test_names_follow_the_conventions_of_prometheus() -> None:
    metrics = [*METRICS, *OF_WATCHERS]

    assert len({metric.name for metric in metrics}) == len(metrics)
    for metric in metrics:
        assert metric.name.startswith("duesweep_")
        assert not metric.meaning.endswith(".")
    units = {metric.name.removeprefix("duesweep_"): metric.unit for metric in metrics}
    assert {name: units[name] for name in _UNITS} == _UNITS
