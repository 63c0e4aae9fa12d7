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
from duesweep.cli.reloading import reload
from duesweep.cli.signals import note_sighup, stop_on_signals
from duesweep.core.errors import make_printable
from duesweep.core.world import Waits
from duesweep.fleet.members import Member, members_of
from duesweep.report.progress import configure_logging
from duesweep.sweep.stop import Stop
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
    with stop_on_signals(stop, "the next watcher or sweep continues"), note_sighup() as is_hung_up:
        members, failures = members_of(configuration.settings_of(files) or [None], overrides)
        for failure in failures:
            if not members:
                raise failure.error
            _log.error(
                "not_watched", source=failure.source, error=make_printable(str(failure.error))
            )

        def renew(tickers: Sequence[Ticker]) -> bool | None:
            return reload(members, tickers, files, overrides) if is_hung_up() else None

        with TemporaryDirectory(prefix="duesweep-watch-") as folder:
            codes = _watch(members, stop, options, Path(folder) / "helper.prom", renew=renew)
    return worst([*(failure.error.exit_code for failure in failures), *codes])


def _watch(
    members: Sequence[Member],
    stop: Stop,
    options: WatchOptions,
    figures: Path,
    *,
    renew: Callable[[Sequence[Ticker]], bool | None],
) -> Sequence[int]:
    """Watch all members. `renew` reads the configuration again if that is wanted, and says whether
    all of it is in force; None: it was not read.
    """
    watched = [_watched(each, stop, options) for each in members]
    healths, tickers = [each.health for each in watched], [each.ticker for each in watched]
    helper, systemd = Helper(helping.command(options.spark_idle, figures)), Systemd(healths)
    file = [HealthFile(options.health_file, healths)] if options.health_file else []
    shared: list[Observer] = [systemd, *file]

    def look_after() -> None:
        for each in watched:
            each.log.look()
        if stop.is_wanted:
            helper.stop(for_good=True)
        elif (is_complete := renew(tickers)) is not None:
            # It would read the file, and its endpoints and servers would be other ones.
            helper.stop(for_good=not is_complete)

    counted = [each.metrics for each in watched]
    pages = _pages(members, healths, partial(metrics_page, counted, figures))
    with _port(options, pages):
        sources = [each.source for each in members]
        _log.info("watching", sources=sources, max_wait_seconds=options.max_wait)
        try:
            codes = run_all(
                [partial(_run, each, options, shared, helper) for each in watched],
                look_after,
                lambda number: stop.is_wanted and tickers[number].is_looking,
            )
        finally:
            systemd.close()
            helper.close()
            for each in watched:
                each.log.close()
    _log.info("stopped", sources=sources)
    return codes


@dataclass(frozen=True, slots=True)
class _Watched:
    """An endpoint's ticks, and who is told of them."""

    ticker: Ticker
    stop: Stop
    health: Health
    log: Log
    metrics: Metrics


def _watched(member: Member, stop: Stop, options: WatchOptions) -> _Watched:
    own, waits = stop.part(), Waits()
    own.waits = waits
    health = Health(member.source, options.max_wait, waits)
    has_spark = configuration.has_prepared_session()
    ticker = Ticker(member.context, own, has_spark=has_spark, progressed=health.progressed)
    metrics = Metrics(member.context.store, waits)
    return _Watched(ticker, own, health, Log(member.source, waits), metrics)


def _run(
    watched: _Watched, options: WatchOptions, shared: Sequence[Observer], helper: Helper
) -> None:
    observers: list[Observer] = [watched.log, watched.health, *shared]
    observers += [] if options.port is None else [watched.metrics]
    observers += [] if watched.ticker.has_spark else [helper]
    try:
        watch(watched.ticker.tick, watched.stop, options.max_wait, observers)
    finally:
        watched.health.end()
        watched.ticker.close()


def _pages(
    members: Sequence[Member], healths: Sequence[Health], metrics: Callable[[], Page]
) -> Pages:
    def health() -> Page:
        is_well = all(health.is_well for health in healths)
        status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
        sources = [health.document() for health in healths]
        return json_page({"is_well": is_well, "sources": sources}, status)

    def live() -> Page:
        return json_page({"is_live": True})

    return {"/": FreshPage(members), "/health": health, "/live": live, "/metrics": metrics}


@contextmanager
def _port(options: WatchOptions, pages: Pages) -> Iterator[None]:
    if options.port is None:
        yield
        return
    with serving(options.host, options.port, pages) as port:
        _log.info("listening", host=options.host, port=port)
        yield
