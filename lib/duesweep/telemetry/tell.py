"""Tells a run's metrics to who wants them. What fails there never fails the run."""

from collections.abc import Iterator, Sequence
from http.client import HTTPException
from typing import Protocol
from urllib.error import HTTPError, URLError

from prometheus_client import CollectorRegistry

from duesweep.errors import Problem
from duesweep.telemetry.figures import Figures
from duesweep.telemetry.prometheus import SweepMetrics
from duesweep.telemetry.run import Run


class Output(Protocol):
    """Where metrics stay until Prometheus asks for them. As text it begins a sentence."""

    def read(self, source: str) -> Figures:
        """What the source's former runs left. Raises as `write`, and `ValueError` for what cannot
        be read as metrics of the source.
        """
        ...

    def write(self, registry: CollectorRegistry, source: str) -> None:
        """Replace the source's metrics. Raises `OSError` and `HTTPException`."""
        ...


def tell(run: Run, outputs: Sequence[Output]) -> Iterator[Problem]:
    """Give the run's metrics to each output. Yields what failed."""
    for output in outputs:
        try:
            former, problem = _read(output, run.source)
            if problem is not None:
                yield problem
            metrics = SweepMetrics({run.source: former})
            metrics.note(run)
            output.write(metrics.registry(), run.source)
        except (OSError, HTTPException) as error:
            yield Problem(
                f"{output} did not get the metrics of this run: {_reason(error)}",
                "the run itself is not affected",
            )


def _read(output: Output, source: str) -> tuple[Figures, Problem | None]:
    try:
        return output.read(source), None
    except ValueError as error:
        return {}, Problem(f"{output} could not be read: {error}", "its counters begin anew")


def _reason(error: OSError | HTTPException) -> str:
    if isinstance(error, HTTPError):
        return f"it answered {error.code} {error.reason}"
    if isinstance(error, URLError):
        return str(error.reason)
    strerror = error.strerror if isinstance(error, OSError) else None
    return strerror or str(error) or type(error).__name__
