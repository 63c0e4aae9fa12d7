"""The values of the metrics after a run, from those before it. No I/O."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from duesweep.core.account import SweepReport
from duesweep.core.errors import ExitCode
from duesweep.telemetry import definitions as known
from duesweep.telemetry.definitions import METRICS, Kind, Metric
from duesweep.telemetry.run import Due, Run

# By the metrics' names; a metric without a value is not exposed.
Figures = Mapping[str, float]

_MILLISECONDS = 1_000


def figures_after(before: Figures, run: Run) -> Figures:
    """Counters go on from `before`; a run that failed keeps the time of the last success; all else
    is this run's.
    """
    counted = {metric.name: value for metric, value in _counted(run)}
    after = {
        metric.name: before.get(metric.name, 0.0) + counted.get(metric.name, 0.0)
        for metric in METRICS
        if metric.kind is Kind.COUNTER
    }
    after |= {metric.name: value for metric, value in _gauges(run) if value is not None}
    ended = run.at.timestamp()
    if run.exit_code == ExitCode.DONE:
        after[known.LAST_SUCCESS.name] = ended
    elif known.LAST_SUCCESS.name in before:
        after[known.LAST_SUCCESS.name] = before[known.LAST_SUCCESS.name]
    return after


def with_counters_of(figures: Figures, others: Figures) -> Figures:
    """`figures`, with the counters of another process added."""
    added = {
        metric.name: figures.get(metric.name, 0.0) + others[metric.name]
        for metric in METRICS
        if metric.kind is Kind.COUNTER and metric.name in others
    }
    return {**figures, **added}


def _counted(run: Run) -> Iterator[tuple[Metric, float]]:
    yield known.RUNS, 1
    report = run.report
    if report is None:
        return
    yield known.DISPATCHED, report.dispatched
    yield known.FAILED, report.failed
    yield known.EXHAUSTED, report.exhausted
    yield known.DISPATCHED_BYTES, report.bytes


def _gauges(run: Run) -> Iterator[tuple[Metric, float | None]]:
    yield known.DURATION, run.seconds
    yield known.EXIT_CODE, run.exit_code
    yield known.LAST_RUN, run.at.timestamp()
    if run.due is not None:
        yield from _due_gauges(run.due)
    reports = (run.report,) if run.report is not None else ()
    yield from _lateness(run.recent or reports)
    if run.report is not None:
        yield from _report_gauges(run.report)
    elif run.exit_code == ExitCode.DONE:
        # There was nothing to do; after an error nobody knows.
        yield known.LEFT, 0
        yield known.OPEN_BREAKERS, 0


def _due_gauges(due: Due) -> Iterator[tuple[Metric, float | None]]:
    yield known.DUE, due.messages
    yield known.OLDEST_DUE, due.oldest_seconds


def _report_gauges(report: SweepReport) -> Iterator[tuple[Metric, float | None]]:
    yield known.LEFT, report.left
    yield known.OPEN_BREAKERS, sum(not breaker.is_closed for breaker in report.breakers)


def _lateness(reports: Sequence[SweepReport]) -> Iterator[tuple[Metric, float | None]]:
    yield known.LATENESS_P50, _worst(report.lateness_p50_ms for report in reports)
    yield known.LATENESS_P95, _worst(report.lateness_p95_ms for report in reports)
    yield known.LATENESS_MAX, _worst(report.lateness_max_ms for report in reports)


def _worst(milliseconds: Iterable[int | None]) -> float | None:
    """In seconds."""
    most = max((each for each in milliseconds if each is not None), default=None)
    return None if most is None else most / _MILLISECONDS
