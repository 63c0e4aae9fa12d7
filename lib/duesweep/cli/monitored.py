"""Tells monitoring of a run of `sweep` that ends, however it ends."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from duesweep.config import Config
from duesweep.errors import DuesweepError, ExitCode
from duesweep.stores.base import Store
from duesweep.texts import make_printable

if TYPE_CHECKING:
    from duesweep.stores.journal import SweepReport
    from duesweep.telemetry.tell import Output


@dataclass(slots=True)
class Ending:
    """How the run ends. `code` None: it does not end here, so nothing is told."""

    code: int | None = None
    report: "SweepReport | None" = None


@contextmanager
def monitored(config: Config, store: Store) -> Iterator[Ending]:
    """Tell of the run in the block. Nothing is told of one that a signal ends at once."""
    ending, began = Ending(), time.monotonic()
    try:
        yield ending
    except Exception as error:
        ending.code = error.exit_code if isinstance(error, DuesweepError) else ExitCode.UNEXPECTED
        _tell(config, store, ending, time.monotonic() - began)
        raise
    if ending.code is not None:
        _tell(config, store, ending, time.monotonic() - began)


def _tell(config: Config, store: Store, ending: Ending, seconds: float) -> None:
    outputs = _outputs(config)
    if not outputs or ending.code is None:
        return
    from duesweep.telemetry.run import Run, look_at_due  # noqa: PLC0415 - few want it
    from duesweep.telemetry.tell import tell  # noqa: PLC0415

    run = Run(
        source=store.source,
        at=datetime.now(UTC),
        seconds=seconds,
        exit_code=ending.code,
        report=ending.report,
        due=look_at_due(store),
    )
    for problem in tell(run, outputs):
        print(make_printable(f"duesweep: {problem}"), file=sys.stderr)


def _outputs(config: Config) -> "list[Output]":
    metrics, outputs = config.metrics, list["Output"]()
    if metrics.textfile is not None:
        from duesweep.telemetry.textfile import TextFile  # noqa: PLC0415

        outputs.append(TextFile(Path(metrics.textfile)))
    if metrics.pushgateway is not None:
        from duesweep.telemetry.pushgateway import Pushgateway  # noqa: PLC0415

        outputs.append(Pushgateway(metrics.pushgateway.get_secret_value()))
    return outputs
