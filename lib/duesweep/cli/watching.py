"""`duesweep watch`: sweeps as messages come due, until a signal ends it."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path

import structlog

from duesweep import config as configuration
from duesweep.api.engines import opened_engine
from duesweep.cli.each import worst
from duesweep.cli.signals import stop_on_signals
from duesweep.errors import DuesweepError
from duesweep.fleet.members import Member, members_of
from duesweep.report.progress import configure_logging
from duesweep.stop import Stop
from duesweep.texts import make_printable
from duesweep.watch.health import Health, HealthFile
from duesweep.watch.helper import Helper
from duesweep.watch.log import Log
from duesweep.watch.server import Page, json_page, serving
from duesweep.watch.several import run_all
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


def run(files: Sequence[Path], overrides: Sequence[str], options: WatchOptions) -> int:
    """Watch until a signal. Returns 0, or the worst exit code of the endpoints of a fleet that
    could not be watched. Raises the error where no endpoint can be.
    """
    configure_logging()
    stop = Stop()
    with stop_on_signals(stop, "the next watcher or sweep continues"):
        members, failures = members_of(configuration.settings_of(files) or [None], overrides)
        for failure in failures:
            if not members:
                raise failure.error
            _log.error(
                "not_watched", source=failure.source, error=make_printable(str(failure.error))
            )
        if options.until_idle is not None:
            return _help(members, stop, options.max_wait, options.until_idle)
        codes = _watch(members, stop, options)
    return worst([*(failure.error.exit_code for failure in failures), *codes])


def _watch(members: Sequence[Member], stop: Stop, options: WatchOptions) -> Sequence[int]:
    has_spark = configuration.has_prepared_session()
    tickers = [Ticker(each.context, stop, has_spark=has_spark) for each in members]
    healths = [Health(each.source, options.max_wait) for each in members]
    logs = [Log(each.source) for each in members]
    systemd, helper = Systemd(), Helper(_on_spark(options.spark_idle))
    watches = []
    for ticker, health, log in zip(tickers, healths, logs, strict=True):
        observers: list[Observer] = [log, health, systemd]
        observers += [] if ticker.has_spark else [helper]
        observers += [HealthFile(options.health_file, healths)] if options.health_file else []
        watches.append(partial(watch, ticker.tick, stop, options.max_wait, observers))
    with _port(options, healths):
        sources = [each.source for each in members]
        _log.info("watching", sources=sources, max_wait_seconds=options.max_wait)
        try:
            codes = run_all(watches)
        finally:
            systemd.close()
            helper.close()
            for log, ticker in zip(logs, tickers, strict=True):
                log.close()
                ticker.close()
    _log.info("stopped", sources=sources)
    return codes


def _help(members: Sequence[Member], stop: Stop, max_wait: float, until_idle: float) -> int:
    """Be the helper of another watcher: sweep on Spark while much is due."""
    idle = _Idle(stop, until_idle)
    # Once, and before the threads: each of them would start a JVM of its own.
    with opened_engine(members[0].context, on_spark=True):
        tickers = [Ticker(each.context, stop, has_spark=True) for each in members]
        return worst(run_all([partial(watch, one.tick, stop, max_wait, [idle]) for one in tickers]))


@contextmanager
def _port(options: WatchOptions, healths: Sequence[Health]) -> Iterator[None]:
    if options.port is None:
        yield
        return

    def page() -> Page:
        is_well = all(health.is_well for health in healths)
        status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
        sources = [health.document() for health in healths]
        return json_page({"is_well": is_well, "sources": sources}, status)

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

    def failed(self, error: DuesweepError) -> None:  # noqa: ARG002 - the contract's
        """Time passes after an error, too: the first watcher tells it."""
        self._look_after()

    def _look_after(self) -> None:
        is_orphan = os.getppid() != self._parent
        if is_orphan or time.monotonic() - self._since >= self._seconds:
            self._stop.ask()
