"""The helper of a watcher: the same command once more, on Spark, for as long as much is due."""

import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from duesweep import config as configuration
from duesweep.api.engines import opened_engine
from duesweep.cli.each import worst
from duesweep.cli.signals import stop_on_signals
from duesweep.core.errors import DuesweepError
from duesweep.fleet.members import members_of
from duesweep.report.progress import configure_logging
from duesweep.sweep.stop import Stop
from duesweep.watch.metrics import FiguresFile
from duesweep.watch.several import run_all
from duesweep.watch.tick import Tick, Ticker
from duesweep.watch.watch import Observer, watch


def command(idle_seconds: float, figures: Path) -> Sequence[str]:
    """The command line that runs this process's command again, as a helper."""
    until, into = f"--until-idle={idle_seconds}", f"--figures={figures}"
    shell = configuration.spark_command()
    if shell is not None:
        return ["bash", "-c", f'{shell} "$@"', "duesweep", until, into]
    return [sys.executable, "-P", "-m", "duesweep", *sys.argv[1:], until, into]


def run(
    files: Sequence[Path],
    overrides: Sequence[str],
    max_wait: float,
    until_idle: float,
    *,
    figures: Path | None,
) -> int:
    """Sweep on Spark until for `until_idle` seconds no tick was enough for Spark. `figures` is the
    file for its metrics. What cannot be watched is told by the first watcher.
    """
    configure_logging()
    stop = Stop()
    with stop_on_signals(stop, "the next watcher or sweep continues"):
        members, failures = members_of(configuration.settings_of(files) or [None], overrides)
        if not members:
            raise failures[0].error
        idle = _Idle(stop, until_idle)
        # Once, and before the threads: each of them would start a JVM of its own.
        with opened_engine(members[0].context, on_spark=True):
            watches = []
            for each in members:
                observers: list[Observer] = [idle]
                observers += [FiguresFile(each.source, figures)] if figures else []
                ticker = Ticker(each.context, stop, has_spark=True)
                watches.append(partial(watch, ticker.tick, stop, max_wait, observers))
            return worst(run_all(watches))


class _Idle:
    """Asks for a stop when for `seconds` no tick was enough for Spark, or nobody needs the helper
    any more.
    """

    def __init__(self, stop: Stop, seconds: float) -> None:
        self._stop, self._seconds = stop, seconds
        self._since = time.monotonic()
        self._parent = os.getppid()

    def ticked(self, tick: Tick) -> None:
        """Count the seconds anew after a tick that was enough."""
        if tick.is_much:
            self._since = time.monotonic()
        self._look_after()

    def failed(self, error: DuesweepError) -> None:  # noqa: ARG002 - the contract's
        """Time passes after an error, too: the first watcher tells it."""
        self._look_after()

    def _look_after(self) -> None:
        is_orphan = os.getppid() != self._parent
        if is_orphan or time.monotonic() - self._since >= self._seconds:
            self._stop.ask()
