"""Tells monitoring of runs of `sweep` that end, however they end."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from duesweep.config import Config, MetricsConfig, otlp_settings
from duesweep.core.account import SweepReport
from duesweep.core.errors import DuesweepError, ExitCode, make_printable
from duesweep.stores.base import Store

if TYPE_CHECKING:
    from duesweep.telemetry.run import Run
    from duesweep.telemetry.tell import Output


@dataclass(slots=True)
class Ending:
    """How the run ends. `code` None: it does not end here, so nothing is told."""

    code: int | None = None
    report: "SweepReport | None" = None


@dataclass(frozen=True, slots=True)
class Ran:
    """A run that has ended: with which exit code, after how many seconds. `report`: None if there
    was nothing to do, or if an error ended it.
    """

    config: Config
    store: Store
    code: int
    seconds: float
    report: "SweepReport | None" = None


@contextmanager
def monitored(config: Config, store: Store) -> Iterator[Ending]:
    """Tell of the run in the block. Nothing is told of one that a signal ends at once."""
    ending, began = Ending(), time.monotonic()

    def end() -> None:
        if ending.code is not None:
            ran = Ran(config, store, ending.code, time.monotonic() - began, ending.report)
            tell_of([ran])

    try:
        yield ending
    except Exception as error:
        ending.code = error.exit_code if isinstance(error, DuesweepError) else ExitCode.UNEXPECTED
        end()
        raise
    end()


def tell_of(ran: Sequence[Ran]) -> None:
    """Tell of runs that have ended, one of each source, as their configurations say."""
    for metrics in dict.fromkeys(each.config.metrics for each in ran):
        outputs = _outputs(metrics)
        if not outputs:
            continue
        from duesweep.telemetry.tell import tell  # noqa: PLC0415 - few want it

        runs = [_run(each) for each in ran if each.config.metrics == metrics]
        for problem in tell(runs, outputs):
            print(make_printable(f"duesweep: {problem}"), file=sys.stderr)


def _run(ran: Ran) -> "Run":
    from duesweep.telemetry.run import Run, look_at_due  # noqa: PLC0415

    # A store that was out of reach just now would be waited for once more.
    is_lost = ran.code == ExitCode.WORK_LEFT and ran.report is None
    return Run(
        source=ran.store.source,
        at=datetime.now(UTC),
        seconds=ran.seconds,
        exit_code=ran.code,
        report=ran.report,
        due=None if is_lost else look_at_due(ran.store),
    )


def _outputs(metrics: MetricsConfig) -> "list[Output]":
    outputs = list["Output"]()
    if metrics.textfile is not None:
        from duesweep.telemetry.textfile import TextFile  # noqa: PLC0415

        outputs.append(TextFile(Path(metrics.textfile)))
    if metrics.pushgateway is not None:
        from duesweep.telemetry.pushgateway import Pushgateway  # noqa: PLC0415

        outputs.append(Pushgateway(metrics.pushgateway.get_secret_value()))
    settings = otlp_settings("metrics")
    if settings is not None and settings.problem is None:
        # `sweep_context` warns where OpenTelemetry is not installed.
        with suppress(ImportError):
            from duesweep.sweep.traces import described_service  # noqa: PLC0415
            from duesweep.telemetry.otlp_metrics import OtlpMetrics  # noqa: PLC0415

            outputs.append(OtlpMetrics(settings.endpoint, settings.headers, described_service()))
    return outputs
