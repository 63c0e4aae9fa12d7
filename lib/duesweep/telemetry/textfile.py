"""A file for the text file collector of Prometheus's node_exporter."""

import fcntl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import write_to_textfile

from duesweep.telemetry.definitions import LAST_RUN
from duesweep.telemetry.figures import Figures
from duesweep.telemetry.prometheus import figures_in, metrics_after
from duesweep.telemetry.run import Run

# A source without a run for so long is gone: an alert on it would never end.
_STALE_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class TextFile:
    """The metrics of any number of sources. A lock file beside it keeps their runs apart."""

    path: Path

    def __str__(self) -> str:
        return f"The metrics file {self.path}"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock file. Raises `OSError`."""
        with self.path.with_name(f".{self.path.name}.lock").open("w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def read(self) -> Mapping[str, Figures]:
        """What former runs left; nothing if there is no file. Raises `OSError`, and `ValueError`
        for a file of another format.
        """
        try:
            return figures_in(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}

    def write(self, former: Mapping[str, Figures], runs: Sequence[Run]) -> None:
        """Replace the file, so that a reader sees the former one or the new one whole. Other
        sources stay in it for a day after their last run. Raises `OSError`.
        """
        since = max(run.at.timestamp() for run in runs) - _STALE_SECONDS
        told = {run.source for run in runs}
        kept = {
            source: figures
            for source, figures in former.items()
            if source in told or figures.get(LAST_RUN.name, 0.0) >= since
        }
        write_to_textfile(str(self.path), metrics_after(kept, runs).registry())
