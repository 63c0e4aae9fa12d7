"""Tells the metrics of runs to who wants them. What fails there never fails a run."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from http.client import HTTPException
from typing import Protocol
from urllib.error import HTTPError, URLError

from duesweep.core.errors import Problem
from duesweep.telemetry.figures import Figures
from duesweep.telemetry.run import Run


class Output(Protocol):
    """Where metrics stay until Prometheus asks for them. As text it begins a sentence."""

    def alone(self) -> AbstractContextManager[object]:
        """Within the block no other run reads or writes it, where that can be had."""
        ...

    def read(self) -> Mapping[str, Figures]:
        """What former runs left, by source. Raises as `write`, and `ValueError` for what cannot be
        read as metrics.
        """
        ...

    def write(self, former: Mapping[str, Figures], runs: Sequence[Run]) -> None:
        """Replace the metrics of the sources of these runs. Raises `OSError` and
        `HTTPException`.
        """
        ...


def tell(runs: Sequence[Run], outputs: Sequence[Output]) -> Iterator[Problem]:
    """Give the metrics of runs, of one source each, to each output. Yields what failed."""
    for output in outputs:
        try:
            with output.alone():
                former, problem = _read(output)
                if problem is not None:
                    yield problem
                output.write(former, runs)
        except (OSError, HTTPException) as error:
            yield Problem(
                f"{output} did not get the metrics of this run: {_reason(error)}",
                "the run itself is not affected",
            )


def _read(output: Output) -> tuple[Mapping[str, Figures], Problem | None]:
    try:
        return output.read(), None
    except ValueError as error:
        return {}, Problem(f"{output} could not be read: {error}", "its counters begin anew")


def _reason(error: OSError | HTTPException) -> str:
    if isinstance(error, HTTPError):
        return f"it answered {error.code} {error.reason}"
    if isinstance(error, URLError):
        return str(error.reason)
    strerror = error.strerror if isinstance(error, OSError) else None
    return strerror or str(error) or type(error).__name__
