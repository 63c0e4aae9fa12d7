"""`duesweep watch`: sweeps as messages come due, until a signal ends it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog

from duesweep import config as configuration
from duesweep.cli import helping
from duesweep.cli.each import worst
from duesweep.cli.fresh_page import FreshPage
from duesweep.cli.signals import stop_on_signals
from duesweep.fleet.members import Member, members_of
from duesweep.report.progress import configure_logging
from duesweep.stop import Stop
from duesweep.texts import make_printable
from duesweep.watch.health import Health, HealthFile
from duesweep.watch.helper import Helper
from duesweep.watch.log import Log
from duesweep.watch.metrics import Metrics, metrics_page
from duesweep.watch.server import Page, Pages, json_page, serving
from duesweep.watch.several import run_all
from duesweep.watch.systemd import Systemd
from duesweep.watch.tick import Ticker
from duesweep.watch.watch import Observer, watch

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """`max_wait` and `spark_idle` are seconds. `port` None: no port."""

    max_wait: float
    spark_idle: float
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
        with TemporaryDirectory(prefix="duesweep-watch-") as folder:
            codes = _watch(members, stop, options, Path(folder) / "helper.prom")
    return worst([*(failure.error.exit_code for failure in failures), *codes])


def _watch(
    members: Sequence[Member], stop: Stop, options: WatchOptions, figures: Path
) -> Sequence[int]:
    has_spark = configuration.has_prepared_session()
    tickers = [Ticker(each.context, stop, has_spark=has_spark) for each in members]
    healths = [Health(each.source, options.max_wait) for each in members]
    logs = [Log(each.source) for each in members]
    counted = [Metrics(each.context.store) for each in members] if options.port is not None else []
    systemd = Systemd()
    helper = Helper(helping.command(options.spark_idle, figures))
    watches = []
    for number, ticker in enumerate(tickers):
        observers: list[Observer] = [logs[number], healths[number], systemd]
        observers += counted[number : number + 1]
        observers += [] if ticker.has_spark else [helper]
        observers += [HealthFile(options.health_file, healths)] if options.health_file else []
        watches.append(partial(watch, ticker.tick, stop, options.max_wait, observers))
    pages = _pages(members, healths, partial(metrics_page, counted, figures))
    with _port(options, pages):
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


def _pages(
    members: Sequence[Member], healths: Sequence[Health], metrics: Callable[[], Page]
) -> Pages:
    def health() -> Page:
        is_well = all(health.is_well for health in healths)
        status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
        sources = [health.document() for health in healths]
        return json_page({"is_well": is_well, "sources": sources}, status)

    return {"/": FreshPage(members), "/health": health, "/metrics": metrics}


@contextmanager
def _port(options: WatchOptions, pages: Pages) -> Iterator[None]:
    if options.port is None:
        yield
        return
    with serving(options.host, options.port, pages) as port:
        _log.info("listening", host=options.host, port=port)
        yield
