"""`duesweep watch`: sweeps as messages come due, until a signal ends it."""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from duesweep import config as configuration
from duesweep.cli.port import pages_of, serving
from duesweep.cli.signals import stop_on_signals
from duesweep.core import logs
from duesweep.core.errors import DuesweepError, make_printable, worst
from duesweep.core.result import exit_code_of
from duesweep.core.world import Waits
from duesweep.operations.endpoint import Endpoint, Stop
from duesweep.operations.health import Health, HealthFile, Systemd
from duesweep.operations.opening import endpoints_of
from duesweep.operations.watch import Log, Observer, Ticker, watch, watch_all
from duesweep.report.metrics import Metrics

# Within this time others of a fleet may not have looked for the first time.
_FIRST_LOOKS_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """`max_wait` is seconds. `port` None: no port."""

    max_wait: float
    health_file: Path | None
    host: str
    port: int | None


def run(
    files: Sequence[Path], endpoint: str | None, overrides: Sequence[str], options: WatchOptions
) -> int:
    """Watch until a signal. Returns 0, or the worst exit code of the endpoints of a fleet that
    could not be watched. Raises the error if no endpoint can be.
    """
    stop = Stop()
    with stop_on_signals(stop, "the next watcher or sweep continues"):
        endpoints, failures = endpoints_of(configuration.settings_of(files, endpoint), overrides)
        for source, error in failures:
            if not endpoints:
                raise error
            logs.error("not_watched", source=source, error=make_printable(str(error)))
        codes = _watch(endpoints, failures, stop, options)
    return worst([*(exit_code_of(error) for _, error in failures), *codes])


def _watch(
    endpoints: Sequence[Endpoint],
    failures: Sequence[tuple[str, DuesweepError]],
    stop: Stop,
    options: WatchOptions,
) -> Sequence[int]:
    """Watch all of them. Monitors also see the `failures`, which are not watched."""
    watched = [_watched(each, stop, options) for each in endpoints]
    tickers = [each.ticker for each in watched]
    healths = [each.health for each in watched]
    for source, error in failures:
        healths.append(Health(source, options.max_wait))
        healths[-1].end(make_printable(str(error)))
    systemd = Systemd(healths)
    file = [HealthFile(options.health_file, healths)] if options.health_file else []
    shared: list[Observer] = [systemd, *file]

    def look_after() -> None:
        for each in watched:
            each.log.look()

    pages = pages_of(endpoints, healths, [each.metrics for each in watched])
    no_port = nullcontext(None)
    with no_port if options.port is None else serving(options.host, options.port, pages) as port:
        if port is not None:
            logs.info("listening", host=options.host, port=port)
        sources = [each.source for each in endpoints]
        logs.info("watching", sources=sources, max_wait_seconds=options.max_wait)
        try:
            codes = watch_all(
                [
                    (each.ticker.source, partial(_run, each, options, shared, watched))
                    for each in watched
                ],
                look_after,
                lambda number: stop.is_wanted and tickers[number].is_looking,
            )
        finally:
            systemd.close()
            for each in watched:
                each.log.close()
    logs.info("stopped", sources=sources)
    return codes


@dataclass(frozen=True, slots=True)
class _Watched:
    """An endpoint's ticks, and their observers."""

    ticker: Ticker
    stop: Stop
    health: Health
    log: Log
    metrics: Metrics


def _watched(endpoint: Endpoint, stop: Stop, options: WatchOptions) -> _Watched:
    own, waits = stop.part(), Waits()
    own.waits = waits
    health = Health(endpoint.source, options.max_wait, waits)
    has_spark = configuration.has_prepared_session()
    ticker = Ticker(endpoint.context, own, has_spark=has_spark)
    metrics = Metrics(endpoint.context.store, waits)
    return _Watched(ticker, own, health, Log(endpoint.source, waits), metrics)


def _run(
    watched: _Watched, options: WatchOptions, shared: Sequence[Observer], all_of: Sequence[_Watched]
) -> None:
    began = time.monotonic()

    def may_wait() -> bool:
        """Wait for tables as long as others can be watched; a refused login is not tried again."""
        is_early = time.monotonic() - began < _FIRST_LOOKS_SECONDS
        others = [each.health.was_well for each in all_of if each is not watched]
        return watched.ticker.was_let_in and (any(others) or (is_early and bool(others)))

    ticker = watched.ticker
    observers: list[Observer] = [watched.log, watched.health, *shared]
    observers += [] if options.port is None else [watched.metrics]
    try:
        watch(
            ticker.source,
            ticker.tick,
            watched.stop,
            observers,
            most_seconds=options.max_wait,
            may_wait=may_wait,
        )
    except Exception as error:
        watched.health.end(make_printable(str(error) or type(error).__name__))
        raise
    finally:
        watched.health.end()
        ticker.close()
