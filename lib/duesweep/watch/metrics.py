"""What Prometheus finds at a watcher's port. Each tick counts as a run.

The helper on Spark is another process: it writes its own figures into a file, from which the
watcher adds the counters to its own.
"""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import structlog
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from duesweep.core.account import SweepReport
from duesweep.core.errors import DuesweepError, ExitCode
from duesweep.core.world import STORE, Waits
from duesweep.stores.base import Store
from duesweep.sweep.sweep import exit_code
from duesweep.telemetry.definitions import LABEL, OLDEST_DUE
from duesweep.telemetry.figures import Figures, figures_after, with_counters_of
from duesweep.telemetry.prometheus import SweepMetrics
from duesweep.telemetry.run import Due, Run, look_at_due
from duesweep.telemetry.tell import tell
from duesweep.telemetry.textfile import TextFile
from duesweep.watch.server import Page
from duesweep.watch.tick import Tick

_log = structlog.get_logger(__name__)

# Counting takes a session of its own, so it is not done after each of many ticks.
_COUNT_EVERY_SECONDS = 10.0
# A scrape sees the sweeps since the one before it, most likely.
_RECENT_SECONDS = 60.0
WAITING = "duesweep_waiting_seconds"
WAITING_MEANING = (
    "For how long a watcher has waited for this; told if it is longer than two seconds"
)


class Metrics:
    """An observer that knows the figures of one source; a server's thread may ask it."""

    def __init__(self, store: Store, waits: Waits | None = None) -> None:
        self._store = store
        self.waits = waits or Waits()
        # Replaced as a whole, so that a scrape sees the figures of whole ticks.
        self._figures: Figures = {}
        # When the oldest stored message came or comes due, by `time.monotonic()`.
        self._oldest_due_at: float | None = None
        self._recent: deque[tuple[float, SweepReport]] = deque()
        self._due: Due | None = None
        self._counted: float | None = None

    @property
    def source(self) -> str:
        """The source's name."""
        return self._store.source

    @property
    def figures(self) -> Figures:
        """The figures at this moment: an age grows while a tick hangs."""
        due_at = self._oldest_due_at
        if due_at is None:
            return self._figures
        return {**self._figures, OLDEST_DUE.name: max(0.0, time.monotonic() - due_at)}

    def ticked(self, tick: Tick) -> None:
        """Note a good tick."""
        now = time.monotonic()
        if self._counted is None or now - self._counted >= _COUNT_EVERY_SECONDS:
            with self.waits.waiting(STORE, "The store has not answered yet how much is due"):
                self._due = look_at_due(self._store)
            self._counted = now = time.monotonic()
            self._oldest_due_at = None
            if self._due is not None and self._due.oldest_seconds:
                self._oldest_due_at = now - self._due.oldest_seconds
        if self._due is not None and self._due.oldest_seconds == 0 and tick.is_caught_up:
            self._oldest_due_at = _next_due_at(tick, now)
        if tick.report is not None:
            self._recent.append((now, tick.report))
        while self._recent and now - self._recent[0][0] > _RECENT_SECONDS:
            self._recent.popleft()
        recent = tuple(report for _, report in self._recent)
        self._figures = figures_after(self._figures, _run(self.source, tick, self._due, recent))

    def failed(self, error: DuesweepError) -> None:
        """Note an error. Nobody knows what is due then."""
        self._counted = None
        self._figures = figures_after(self._figures, _failed_run(self.source, error))


class FiguresFile:
    """An observer of the helper on Spark: it writes the figures of a source into a file."""

    def __init__(self, source: str, file: Path) -> None:
        self._source, self._file = source, TextFile(file)

    def ticked(self, tick: Tick) -> None:
        """Note a good tick."""
        self._tell(_run(self._source, tick))

    def failed(self, error: DuesweepError) -> None:
        """Note an error."""
        self._tell(_failed_run(self._source, error))

    def _tell(self, run: Run) -> None:
        for problem in tell([run], [self._file]):
            _log.error("figures_not_written", error=problem.text)


def metrics_page(watched: Sequence[Metrics], file: Path) -> Page:
    """The metrics of all sources; `file` has the helper's figures, if it has run."""
    try:
        helpers = TextFile(file).read()
    except (OSError, ValueError):
        helpers = {}
    sources = {
        each.source: with_counters_of(each.figures, helpers.get(each.source, {}))
        for each in watched
    }
    registry = SweepMetrics(sources).registry()
    registry.register(_WaitsOf(watched))
    return Page(generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4)


class _WaitsOf(Collector):
    def __init__(self, watched: Sequence[Metrics]) -> None:
        self._watched = watched

    def collect(self) -> Iterator[Family]:
        """What watchers wait for."""
        family = GaugeMetricFamily(WAITING, f"{WAITING_MEANING}.", labels=[LABEL, "for"])
        for each in self._watched:
            for wait in each.waits.long():
                family.add_metric([each.source, wait.what], wait.seconds)
        if family.samples:
            yield family


def _next_due_at(tick: Tick, now: float) -> float | None:
    next_due = tick.next_due
    return None if next_due is None else now + (next_due.instant - next_due.now).total_seconds()


def _run(
    source: str, tick: Tick, due: Due | None = None, recent: tuple[SweepReport, ...] = ()
) -> Run:
    report = tick.report
    code = ExitCode.DONE if report is None else exit_code(report)
    return Run(source, datetime.now(UTC), tick.seconds, code, report, due, recent)


def _failed_run(source: str, error: DuesweepError) -> Run:
    return Run(source, datetime.now(UTC), 0.0, int(error.exit_code))
