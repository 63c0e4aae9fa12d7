"""`duesweep watch`: sweeps as messages come due, until a signal ends it."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import structlog

from duesweep import config as configuration
from duesweep import wiring
from duesweep.cli.signals import stop_on_signals
from duesweep.errors import ExitCode
from duesweep.report.progress import configure_logging
from duesweep.stop import Stop
from duesweep.watch.health import Health
from duesweep.watch.helper import Helper
from duesweep.watch.log import Log
from duesweep.watch.server import Page, json_page, serving
from duesweep.watch.systemd import Systemd
from duesweep.watch.tick import Tick, Ticker
from duesweep.watch.watch import Observer, watch

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """`max_wait` and `spark_idle` are seconds. `until_idle`: this is a helper on Spark, which ends
    when for so many seconds nothing was enough for Spark; None: it is not. `port` None: no port.
    """

    max_wait: float
    spark_idle: float
    until_idle: float | None
    health_file: Path | None
    host: str
    port: int | None


def run(file: Path | None, overrides: Sequence[str], options: WatchOptions) -> int:
    """Watch until a signal. Returns 0."""
    configure_logging()
    stop = Stop()
    with stop_on_signals(stop, "the next watcher or sweep continues"):
        context = wiring.sweep_context(configuration.load(file, overrides))
        if options.until_idle is not None:
            helping = Ticker(context, stop, has_spark=True)
            watch(helping.tick, stop, options.max_wait, [_Idle(stop, options.until_idle)])
            return ExitCode.DONE
        has_spark = configuration.has_prepared_session()
        source, ticker = context.store.source, Ticker(context, stop, has_spark=has_spark)
        health = Health(source, options.max_wait, options.health_file)
        log, systemd = Log(source), Systemd()
        helper = None if ticker.has_spark else Helper(_on_spark(options.spark_idle))
        observers: list[Observer] = [log, health, systemd, *([helper] if helper else [])]
        with _port(options, health):
            _log.info("watching", source=source, max_wait_seconds=options.max_wait)
            try:
                watch(ticker.tick, stop, options.max_wait, observers)
            finally:
                systemd.close()
                if helper:
                    helper.close()
                log.close()
        _log.info("stopped", source=source)
    return ExitCode.DONE


@contextmanager
def _port(options: WatchOptions, health: Health) -> Iterator[None]:
    if options.port is None:
        yield
        return

    def page() -> Page:
        status = HTTPStatus.OK if health.is_well else HTTPStatus.SERVICE_UNAVAILABLE
        return json_page(health.document(), status)

    with serving(options.host, options.port, {"/health": page}) as port:
        _log.info("listening", host=options.host, port=port)
        yield


def _on_spark(idle_seconds: float) -> Sequence[str]:
    """The command that runs this one again, as a helper on Spark."""
    until = f"--until-idle={idle_seconds}"
    command = configuration.spark_command()
    if command is not None:
        return ["bash", "-c", f"{command} {until}"]
    return [sys.executable, "-P", "-m", "duesweep", *sys.argv[1:], until]


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

    def failed(self, error: Exception) -> None:  # noqa: ARG002 - the contract's
        """Time passes after an error, too: the first watcher tells it."""
        self._look_after()

    def _look_after(self) -> None:
        is_orphan = os.getppid() != self._parent
        if is_orphan or time.monotonic() - self._since >= self._seconds:
            self._stop.ask()
