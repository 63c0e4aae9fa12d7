"""The metrics over OTLP/HTTP, once, when a run ends."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    InMemoryMetricReader,
    MetricExportResult,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.util.re import parse_env_headers

from duesweep import __version__
from duesweep.telemetry.definitions import LABEL, METRICS, Kind, Metric
from duesweep.telemetry.figures import Figures, figures_after
from duesweep.telemetry.run import Run

_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class OtlpMetrics:
    """Sends to `endpoint`, the whole URL. A counter has what this run counted (a delta): the
    collector adds the runs up.
    """

    endpoint: str
    headers: str = field(default="", repr=False)
    resource: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"The collector at {self.endpoint}"

    def alone(self) -> AbstractContextManager[None]:
        """Runs do not disturb each other."""
        return nullcontext()

    def read(self) -> Mapping[str, Figures]:
        """Nothing: a collector keeps what it gets for itself."""
        return {}

    def write(self, former: Mapping[str, Figures], runs: Sequence[Run]) -> None:  # noqa: ARG002 - the contract's
        """Send the metrics of these runs. Raises `OSError`."""
        sources = {run.source: figures_after({}, run) for run in runs}
        exporter = OTLPMetricExporter(
            endpoint=self.endpoint,
            headers=parse_env_headers(self.headers, liberal=True),
            timeout=_PATIENCE_SECONDS,
        )
        reader = InMemoryMetricReader({ObservableCounter: AggregationTemporality.DELTA})
        provider = MeterProvider([reader], Resource(dict(self.resource)), shutdown_on_exit=False)
        meter = provider.get_meter("duesweep", __version__)
        for metric in METRICS:
            create = (
                meter.create_observable_counter
                if metric.kind is Kind.COUNTER
                else meter.create_observable_gauge
            )
            name = metric.name.removesuffix("_total")
            create(name, [_observer(metric, sources)], description=metric.meaning)
        data = reader.get_metrics_data()
        if data is not None and exporter.export(data) is not MetricExportResult.SUCCESS:
            raise OSError("it did not take them; the line above says why")


def _observer(
    metric: Metric, sources: Mapping[str, Figures]
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        for source, figures in sources.items():
            if metric.name in figures:
                yield Observation(figures[metric.name], {LABEL: source})

    return observe
