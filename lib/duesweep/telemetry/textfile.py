"""A file for the text file collector of Prometheus's node_exporter."""

from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, write_to_textfile

from duesweep.telemetry.figures import Figures
from duesweep.telemetry.prometheus import lasting_figures
from duesweep.texts import shorten


@dataclass(frozen=True, slots=True)
class TextFile:
    """One file for each configuration: the last run's figures replace the whole file."""

    path: Path

    def __str__(self) -> str:
        return f"The metrics file {self.path}"

    def read(self, source: str) -> Figures:
        """What the source's former run left; nothing if there is no file. Raises `OSError`, and
        `ValueError` for a file of another format or source.
        """
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        found = lasting_figures(text)
        others = sorted(found.keys() - {source})
        if others:
            raise ValueError(
                f"it held the metrics of source {shorten(others[0])}, and each configuration needs "
                "a file of its own"
            )
        return found.get(source, {})

    def write(self, registry: CollectorRegistry, source: str) -> None:  # noqa: ARG002 - the contract's
        """Replace the file, so that a reader sees the former one or the new one whole. Raises
        `OSError`.
        """
        write_to_textfile(str(self.path), registry)
