"""The places that keep the metrics of ended runs: a file, a Pushgateway, a
collector of OpenTelemetry. An error here fails no run.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit, urlunsplit

from prometheus_client import push_to_gateway, write_to_textfile
from prometheus_client.exposition import basic_auth_handler, default_handler

from duesweep import __version__
from duesweep.config import otlp_settings
from duesweep.core.errors import Problem
from duesweep.core.world import Patience
from duesweep.drivers.process import open_lock, try_lock
from duesweep.operations.endpoint import Endpoint
from duesweep.operations.run import Run, with_due
from duesweep.report.metrics import (
    LABEL,
    LAST_RUN,
    LAST_SUCCESS,
    METRICS,
    Figures,
    Metric,
    figures_after,
    figures_in,
    registry_of,
    values_of,
)

# A source without a run for this time is gone: an alert on it would never end.
_STALE_SECONDS = 86_400.0
_PATIENCE_SECONDS = 5
# For a file that many runs share; each has it for a moment.
_LOCK_SECONDS = 30
JOB = "duesweep"
# The group of metrics that stay when a run fails.
SUCCESS_JOB = "duesweep_success"


class Output(NamedTuple):
    """A place for metrics. `name` begins a sentence. `send` gives it the runs, one of each source,
    and yields problems; it raises `OSError` and `HTTPException` if they did not arrive.
    """

    name: str
    send: Callable[[Sequence[Run]], Iterable[Problem]]


def tell_of(ran: Sequence[tuple[Endpoint, Run]]) -> Iterator[Problem]:
    """Give the metrics of runs to the outputs that their configurations name, and to a collector
    that the environment names. Yields errors.
    """
    for metrics in dict.fromkeys(endpoint.config.metrics for endpoint, _ in ran):
        outputs = []
        if metrics.textfile is not None:
            outputs.append(textfile(Path(metrics.textfile)))
        if metrics.pushgateway is not None:
            outputs.append(pushgateway(metrics.pushgateway.get_secret_value()))
        settings = otlp_settings("metrics")
        if settings is not None and settings.problem is None:
            # `tracing` of the adapters warns where OpenTelemetry is not installed.
            with suppress(ImportError):
                outputs.append(collector(settings.endpoint, settings.headers))
        if settings is not None and settings.problem is not None:
            yield Problem(f"The metrics of this run are not sent: {settings.problem}")
        if outputs:
            runs = [with_due(each, run) for each, run in ran if each.config.metrics == metrics]
            yield from tell(runs, outputs)


def tell(runs: Sequence[Run], outputs: Iterable[Output]) -> Iterator[Problem]:
    """Give the metrics of runs, of one source each, to each output. Yields errors."""
    for output in outputs:
        try:
            yield from output.send(runs)
        except (OSError, HTTPException) as error:
            yield Problem(
                f"{output.name} did not get the metrics of this run: {_reason(error)}",
                "the run itself is not affected",
            )


def _reason(error: OSError | HTTPException) -> str:
    if isinstance(error, HTTPError):
        return f"it answered {error.code} {error.reason}"
    if isinstance(error, URLError):
        return str(error.reason)
    strerror = error.strerror if isinstance(error, OSError) else None
    return strerror or str(error) or type(error).__name__


def textfile(path: Path) -> Output:
    """A file for the text file collector of Prometheus's node_exporter, with the metrics of any
    number of sources. A lock file next to it keeps their runs apart.
    """
    name = f"The metrics file {path}"

    def send(runs: Sequence[Run]) -> Iterator[Problem]:
        with open_lock(path.with_name(f".{path.name}.lock")) as lock:
            patience = Patience(_LOCK_SECONDS)
            while not try_lock(lock):
                if not patience.wait(lambda: f"another run writes {path}"):
                    raise TimeoutError(f"another run has locked it for {_LOCK_SECONDS} s")
            try:
                former = figures_in(path.read_text(encoding="utf-8"))
            except FileNotFoundError:
                former = {}
            except ValueError as error:
                yield Problem(
                    f"{name} could not be read: {error}", "its counters start again from zero"
                )
                former = {}
            # As a whole, so that a reader sees the former file or the new one.
            write_to_textfile(str(path), registry_of(_after(former, runs)))

    return Output(name, send)


def _after(former: Mapping[str, Figures], runs: Sequence[Run]) -> Mapping[str, Figures]:
    """The figures of these runs, and of other sources for a day after their last run."""
    since = max(run.ended.timestamp() for run in runs) - _STALE_SECONDS
    kept = {
        source: figures for source, figures in former.items() if figures.get(LAST_RUN, 0.0) >= since
    }
    return kept | {run.source: figures_after(former.get(run.source, {}), run) for run in runs}


def pushgateway(url: str) -> Output:
    """Prometheus's Pushgateway, for runs that end before they could be scraped. `url` may hold
    user and password; a redirect gets neither, as no PUT is sent on.

    A group for each source is replaced as a whole, so that nothing stale stays in it; one more
    keeps the time of the last success. Counters have the values of the last run: other jobs share
    the gateway's contents, which are not read.
    """
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    address = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
    name, _, password = user.partition(":")
    handler: Callable[..., Callable[[], None]] = default_handler
    if at:
        handler = partial(basic_auth_handler, username=unquote(name), password=unquote(password))

    def push(job: str, source: str, figures: Figures) -> None:
        push_to_gateway(
            address,
            job=job,
            registry=registry_of({source: figures}),
            grouping_key={LABEL: source},
            timeout=_PATIENCE_SECONDS,
            handler=handler,
        )

    def send(runs: Sequence[Run]) -> Iterable[Problem]:
        for run in runs:
            figures = dict(figures_after({}, run))
            success = figures.pop(LAST_SUCCESS, None)
            push(JOB, run.source, figures)
            if success is not None:
                push(SUCCESS_JOB, run.source, {LAST_SUCCESS: success})
        return ()

    return Output(f"The Pushgateway at {address}", send)


def collector(endpoint: str, headers: str = "") -> Output:
    """A collector of OpenTelemetry, over OTLP/HTTP; `endpoint` is the whole URL. Counters are
    cumulative, the only kind that Prometheus takes: each run is a process that starts at 0, and its
    start time says so. Raises `ImportError` where OpenTelemetry is not installed.
    """
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415 - few want it
        OTLPMetricExporter,
    )
    from opentelemetry.metrics import CallbackOptions, Observation  # noqa: PLC0415
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import (  # noqa: PLC0415
        InMemoryMetricReader,
        MetricExportResult,
    )
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.util.re import parse_env_headers  # noqa: PLC0415

    from duesweep.sweep.traces import described_service  # noqa: PLC0415

    def observe(
        sources: Mapping[str, Figures], metric: Metric, _: CallbackOptions
    ) -> Iterable[Observation]:
        return [Observation(value, dict(labels)) for labels, value in values_of(metric, sources)]

    def send(runs: Sequence[Run]) -> Iterable[Problem]:
        sources = {run.source: figures_after({}, run) for run in runs}
        reader = InMemoryMetricReader()
        resource = Resource(dict(described_service()))
        meter = MeterProvider([reader], resource, shutdown_on_exit=False).get_meter(
            "duesweep", __version__
        )
        for metric in METRICS:
            create = (
                meter.create_observable_counter
                if metric.is_counter
                else meter.create_observable_gauge
            )
            create(
                metric.name.removesuffix("_total"),
                [partial(observe, sources, metric)],
                unit=metric.unit,
                description=metric.meaning,
            )
        exporter = OTLPMetricExporter(
            endpoint=endpoint,
            headers=parse_env_headers(headers, liberal=True),
            timeout=_PATIENCE_SECONDS,
        )
        data = reader.get_metrics_data()
        if data is not None and exporter.export(data) is not MetricExportResult.SUCCESS:
            raise OSError("it did not take them; the line above says why")
        return ()

    parts = urlsplit(endpoint)
    shown = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    return Output(f"The collector at {shown}", send)
