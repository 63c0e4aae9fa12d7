"""The metrics as Prometheus's client library exposes and reads them."""

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from duesweep.telemetry.definitions import LABEL, METRICS, NAMES, Kind
from duesweep.telemetry.figures import Figures, figures_after
from duesweep.telemetry.run import Run

_FAMILIES = {Kind.COUNTER: CounterMetricFamily, Kind.GAUGE: GaugeMetricFamily}


class SweepMetrics(Collector):
    """The metrics of one source or several. A scrape may come in any thread. `former` are figures
    to go on from, by source.
    """

    def __init__(self, former: Mapping[str, Figures] | None = None) -> None:
        # Replaced as a whole, so that a scrape sees the figures of whole runs.
        self._sources: Mapping[str, Figures] = dict(former or {})

    def note(self, run: Run) -> None:
        """Take in a run that has ended. For one thread at a time."""
        before = self._sources.get(run.source, {})
        self._sources = {**self._sources, run.source: figures_after(before, run)}

    def collect(self) -> Iterator[Family]:
        """Each metric that has a value."""
        sources = self._sources
        for metric in METRICS:
            family = _FAMILIES[metric.kind](metric.name, f"{metric.meaning}.", labels=[LABEL])
            for source, figures in sources.items():
                if metric.name in figures:
                    family.add_metric([source], figures[metric.name])
            if family.samples:
                yield family

    def registry(self) -> CollectorRegistry:
        """A registry of these metrics, and of nothing else."""
        registry = CollectorRegistry()
        registry.register(self)
        return registry


def metrics_after(former: Mapping[str, Figures], runs: Sequence[Run]) -> SweepMetrics:
    """The metrics of `former`, and of these runs after them."""
    metrics = SweepMetrics(former)
    for run in runs:
        metrics.note(run)
    return metrics


def figures_in(text: str) -> Mapping[str, Figures]:
    """The figures of each source in a text in Prometheus's format. Raises `ValueError` for another
    format.
    """
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in NAMES and LABEL in sample.labels:
                found.setdefault(sample.labels[LABEL], {})[sample.name] = sample.value
    return found
