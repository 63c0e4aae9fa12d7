"""The metrics: their names, their values after a run, and how Prometheus's client library exposes
and reads them. docs/metrics.md is compared with the tables here.

All have the label `source`, the stable name of the store; some have one more.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from duesweep import __version__
from duesweep.core.account import SweepReport
from duesweep.core.errors import ExitCode, make_printable, shorten
from duesweep.core.world import STORE, Waits
from duesweep.operations.look import StillDue, look_at_due
from duesweep.operations.run import Run
from duesweep.stores.base import Store

LABEL = "source"
# Each value of a label is a time series. An endpoint has tens of destinations, a wrong one many.
MOST_NAMED, OTHERS = 30, "(others)"


class Sample(NamedTuple):
    """A number of a metric, by the metric's name; `of` is the value of the label that the metric
    also has, if it has one.
    """

    metric: str
    of: str = ""


# A metric without a value is not exposed.
Figures = Mapping[Sample, float]


# UCUM's, for OpenTelemetry, by the last word of a name.
_UNITS = {"seconds": "s", "bytes": "By"} | {
    f"{word}s": f"{{{word}}}" for word in ("message", "run", "breaker")
}


class Metric(NamedTuple):
    """`name` as it is exposed, by Prometheus's conventions: they give its kind and its unit.
    `meaning` is its HELP, a sentence without a full stop. `of` returns the addition of a run to a
    counter, or a gauge's value after it; None: it is unknown. Of a metric with a `label` it says
    that for each value of the label. A metric that `stays` keeps its value if the new one is
    unknown.
    """

    name: str
    meaning: str
    of: Callable[[Run], float | Mapping[str, float] | None]
    label: str | None = None
    stays: bool = False

    @property
    def is_counter(self) -> bool:
        """Whether it continues from run to run; else it is a gauge of the last run."""
        return self.name.endswith("_total")

    @property
    def unit(self) -> str:
        """The unit of its numbers."""
        return _UNITS.get(self.name.removesuffix("_total").rpartition("_")[2], "1")

    def samples(self, run: Run) -> Figures:
        """Its value after a run, or the run's addition to it; empty if unknown."""
        found = self.of(run)
        if found is None:
            return {}
        if isinstance(found, Mapping):
            return {Sample(self.name, each): value for each, value in found.items()}
        return {Sample(self.name): found}


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1_000


def _reported(run: Run, of: Callable[[SweepReport], float | None]) -> float | None:
    return None if run.report is None else of(run.report)


def _left(run: Run) -> float | None:
    """The messages that a run left: none if it had no work; unknown after an error."""
    if run.report is not None:
        return run.report.left
    return 0 if run.exit_code == ExitCode.DONE else None


def _open_breakers(run: Run) -> Mapping[str, float]:
    breakers = () if run.report is None else run.report.breakers
    return {make_printable(each.name): 1 for each in breakers if not each.is_closed}


def _by_destination(outcome: str) -> Callable[[Run], Mapping[str, float] | None]:
    def of(run: Run) -> Mapping[str, float] | None:
        found: Counter[str] = Counter()
        counted = {} if run.report is None else run.report.by_destination
        for (destination, what), messages in counted.items():
            if what == outcome:
                found[make_printable(shorten(destination))] += messages
        return found

    return of


OLDEST_DUE = Sample("duesweep_oldest_due_age_seconds")
LAST_RUN = Sample("duesweep_last_run_timestamp_seconds")
LAST_SUCCESS = Sample("duesweep_last_success_timestamp_seconds")
LATENESS = tuple(Sample(f"duesweep_lateness_{each}_seconds") for each in ("p50", "p95", "max"))

METRICS = (
    Metric(
        "duesweep_dispatched_messages_total",
        "Messages delivered to their queue, or deferred in RabbitMQ",
        lambda run: _reported(run, lambda report: report.dispatched),
    ),
    Metric(
        "duesweep_failed_messages_total",
        "Failed deliveries; their messages stay in the store for another attempt",
        lambda run: _reported(run, lambda report: report.failed),
    ),
    Metric(
        "duesweep_exhausted_messages_total",
        "Messages out of attempts, moved to the ledger's errors",
        lambda run: _reported(run, lambda report: report.exhausted),
    ),
    *(
        Metric(
            f"duesweep_destination_{outcome}_messages_total",
            f"The same by destination: messages {outcome}",
            _by_destination(outcome),
            label="destination",
        )
        for outcome in ("dispatched", "failed", "exhausted")
    ),
    Metric(
        "duesweep_dispatched_bytes_total",
        "Bytes of the bodies that were dispatched",
        lambda run: _reported(run, lambda report: report.bytes),
    ),
    Metric(
        "duesweep_runs_total",
        "Runs that have ended, also without work",
        lambda _: 1,
    ),
    Metric(
        "duesweep_late_runs_total",
        "Runs that dispatched a message later than slo.lateness_seconds allows",
        lambda run: float(run.is_late),
    ),
    Metric(
        "duesweep_due_messages",
        "Messages that the next run would move; counted up to 100,000",
        lambda run: None if run.due is None else run.due.messages,
    ),
    Metric(
        OLDEST_DUE.metric,
        "Age of the oldest due message, also if it is held back; 0 if none is due",
        lambda run: None if run.due is None else run.due.oldest_seconds,
    ),
    Metric(
        "duesweep_left_messages",
        "Planned messages not reached, or whose destination was unavailable",
        _left,
    ),
    Metric(
        "duesweep_skipped_messages",
        "Due messages whose rows other processes held in the last run",
        lambda run: _reported(run, lambda report: report.skipped),
    ),
    Metric(
        "duesweep_open_breakers",
        "1 for each destination or service that was unavailable at the end",
        _open_breakers,
        label="destination",
    ),
    Metric(
        LATENESS[0].metric,
        "Median time from due to dispatch in the last run",
        lambda run: _reported(run, lambda report: _seconds(report.lateness_p50_ms)),
    ),
    Metric(
        LATENESS[1].metric,
        "95th percentile of the time from due to dispatch in the last run",
        lambda run: _reported(run, lambda report: _seconds(report.lateness_p95_ms)),
    ),
    Metric(
        LATENESS[2].metric,
        "Longest time from due to dispatch in the last run",
        lambda run: _reported(run, lambda report: _seconds(report.lateness_max_ms)),
    ),
    Metric(
        "duesweep_ledger_behind",
        "1 if rows wait for a ledger that could not be written, else 0",
        lambda run: None if run.is_lost else float(run.ledger_error is not None),
        stays=True,
    ),
    Metric(
        "duesweep_run_duration_seconds",
        "Duration of the last run",
        lambda run: run.seconds,
    ),
    Metric(
        "duesweep_run_exit_code",
        "Exit code of the last run",
        lambda run: run.exit_code,
    ),
    Metric(
        LAST_RUN.metric,
        "Unix time at which the last run ended",
        lambda run: run.ended.timestamp(),
    ),
    Metric(
        LAST_SUCCESS.metric,
        "Unix time at which a run last ended with exit code 0",
        lambda run: run.ended.timestamp() if run.exit_code == ExitCode.DONE else None,
        stays=True,
    ),
    Metric(
        "duesweep_build_info",
        "1, with the version of duesweep in the last run",
        lambda _: {__version__: 1},
        label="version",
    ),
)

# More metrics of a watcher, at each scrape.
WAITING = "duesweep_waiting_seconds"
LAST_GOOD_TICK = Sample("duesweep_last_good_tick_timestamp_seconds")
OF_WATCHERS = (
    Metric(
        WAITING,
        "How long a watcher has waited, if for more than two seconds",
        lambda _: None,
        label="for",
    ),
    Metric(
        LAST_GOOD_TICK.metric,
        "Unix time of the last good tick, or of the start",
        lambda _: None,
    ),
)
_LABELS = {metric.name: metric.label for metric in METRICS}


def figures_after(before: Figures, run: Run) -> Figures:
    """Counters continue from `before`; a metric that stays is as `before` if this run has no value;
    all others are this run's.
    """
    after: dict[Sample, float] = {}
    for metric in METRICS:
        known, plain = metric.samples(run), Sample(metric.name)
        if metric.is_counter and metric.label:
            former = {each: value for each, value in before.items() if each.metric == metric.name}
            after |= _added(former, known)
        elif metric.is_counter:
            after[plain] = before.get(plain, 0.0) + known.get(plain, 0.0)
        elif metric.stays and not known and plain in before:
            after[plain] = before[plain]
        else:
            after |= known
    return after


def _added(former: Figures, known: Figures) -> Figures:
    """A counter with a label after a run. It names `MOST_NAMED` values of the label, the first ones
    and of a run the largest, for as long as it continues; all others are one.
    """
    after = dict(former)
    for sample, value in sorted(known.items(), key=lambda each: -each[1]):
        is_named = sample in after or len(after) < MOST_NAMED
        name = sample if is_named else Sample(sample.metric, OTHERS)
        after[name] = after.get(name, 0.0) + value
    return after


class Exposed(Collector):
    """The figures of sources, as a collector of Prometheus's library."""

    def __init__(self, sources: Mapping[str, Figures]) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Family]:
        """Each metric that has a value."""
        for metric in (*METRICS, *OF_WATCHERS):
            labels = [LABEL, metric.label] if metric.label else [LABEL]
            kind = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
            family = kind(metric.name, f"{metric.meaning}.", labels=labels)
            for found, value in values_of(metric, self._sources):
                family.add_metric([found[label] for label in labels], value)
            if family.samples:
                yield family


def values_of(
    metric: Metric, sources: Mapping[str, Figures]
) -> Iterator[tuple[Mapping[str, str], float]]:
    """The numbers of a metric with their labels."""
    for source, figures in sources.items():
        for sample, value in figures.items():
            if sample.metric == metric.name:
                yield {LABEL: source} | ({metric.label: sample.of} if metric.label else {}), value


def registry_of(sources: Mapping[str, Figures]) -> CollectorRegistry:
    """A registry of these figures, and of nothing else."""
    registry = CollectorRegistry()
    registry.register(Exposed(sources))
    return registry


def figures_in(text: str) -> Mapping[str, Figures]:
    """The figures of each source in a text in Prometheus's format. Raises `ValueError` for another
    format.
    """
    found: dict[str, dict[Sample, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in _LABELS and LABEL in sample.labels:
                of = sample.labels.get(_LABELS[sample.name] or "", "")
                figures = found.setdefault(sample.labels[LABEL], {})
                figures[Sample(sample.name, of)] = sample.value
    return found


# Counting takes a session of its own, so it is not done after each of many ticks.
_COUNT_EVERY_SECONDS = 10.0
# A scrape sees the sweeps since the one before it, most likely.
_RECENT_SECONDS = 60.0


class Metrics:
    """An observer of a watcher that knows the figures of one source; a server's thread may ask it.
    Each tick counts as a run.
    """

    def __init__(self, store: Store, waits: Waits | None = None) -> None:
        self._store = store
        self.waits = waits or Waits()
        # Replaced as a whole, so that a scrape sees the figures of whole ticks.
        self._figures: Figures = {}
        self._last_good_tick = time.time()
        # When the oldest stored message came or comes due, by `time.monotonic()`.
        self._oldest_due_at: float | None = None
        self._recent: deque[tuple[float, Figures]] = deque()
        self._due: StillDue | None = None
        self._counted: float | None = None

    @property
    def source(self) -> str:
        """The source's name."""
        return self._store.source

    @property
    def figures(self) -> Figures:
        """The figures at this moment: an age grows while a tick hangs."""
        due_at = self._oldest_due_at
        age = {} if due_at is None else {OLDEST_DUE: max(0.0, time.monotonic() - due_at)}
        waits = {Sample(WAITING, each.what): each.seconds for each in self.waits.long()}
        return {**self._figures, **age, **waits, LAST_GOOD_TICK: self._last_good_tick}

    def __call__(self, run: Run) -> None:
        """Note a tick. After an error the due messages are unknown."""
        if run.is_lost:
            self._counted = None
            self._figures = figures_after(self._figures, run)
            return
        self._last_good_tick = run.ended.timestamp()
        now = time.monotonic()
        if self._counted is None or now - self._counted >= _COUNT_EVERY_SECONDS:
            now = self._count()
        if self._due is not None and self._due.oldest_seconds == 0 and run.is_caught_up:
            due = run.next_due
            seconds = None if due is None else (due.instant - due.now).total_seconds()
            self._oldest_due_at = None if seconds is None else now + seconds
        figures = figures_after(self._figures, replace(run, due=self._due))
        self._figures = {**figures, **self._worst_lateness(figures, now)}

    def _count(self) -> float:
        with self.waits.waiting(STORE, "The store has not answered yet how much is due"):
            self._due = look_at_due(self._store)
        self._counted = now = time.monotonic()
        self._oldest_due_at = None
        if self._due is not None and self._due.oldest_seconds:
            self._oldest_due_at = now - self._due.oldest_seconds
        return now

    def _worst_lateness(self, figures: Figures, now: float) -> Figures:
        """The lateness of the last minute: most ticks have no work, and would hide it."""
        if any(name in figures for name in LATENESS):
            self._recent.append((now, figures))
        while self._recent and now - self._recent[0][0] > _RECENT_SECONDS:
            self._recent.popleft()
        recent = [each for _, each in self._recent]
        return {
            name: max(each[name] for each in recent if name in each)
            for name in LATENESS
            if any(name in each for each in recent)
        }


def exposed_text(watched: Sequence[Metrics]) -> bytes:
    """The metrics of all sources of a watcher, for a scrape."""
    return generate_latest(registry_of({each.source: each.figures for each in watched}))
