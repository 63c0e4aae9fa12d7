"""The loop of a watcher: tick, tell, wait.

A watcher keeps nothing between ticks but how to wait: what it does is in the store, the journal and
the ledger. So it may die at any time, and any number of watchers may serve one endpoint.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from duesweep.core.errors import ConfigError, DuesweepError, LedgerError, SparkError
from duesweep.core.policy import (
    LEAST_WAIT_SECONDS,
    MOST_WAIT_AFTER_ERRORS_SECONDS,
    MOST_WAIT_FOR_LEDGER_SECONDS,
    MOST_WAIT_FOR_LOCKED_SECONDS,
    wait_after,
    wait_for_next,
)
from duesweep.sweep.stop import Stop
from duesweep.watch.tick import Tick


class Observer(Protocol):
    """Is told what a watcher does. It must not raise, and must not take long."""

    def ticked(self, tick: Tick) -> None:
        """A tick has ended well."""
        ...

    def failed(self, error: DuesweepError) -> None:
        """A tick has ended with an error, and the watcher goes on."""
        ...


@dataclass(slots=True)
class _Row:
    """How many ticks in a row failed, and how many moved nothing although something was due."""

    failed: int = 0
    moved_nothing: int = 0


def watch(
    tick: Callable[[], Tick], stop: Stop, most_seconds: float, observers: Sequence[Observer]
) -> None:
    """Tick until `stop` is wanted, and wait `most_seconds` at most between two ticks.

    Raises `ConfigError` if the first tick does, since then somebody is there to correct it; a later
    one is waited out, as a database that is restored lacks its tables for a while. Raises
    `SparkError`: a session that is lost does not come back in its process.
    """
    row, is_first = _Row(), True
    while not stop.is_wanted:
        try:
            done = tick()
        except SparkError:
            raise
        except DuesweepError as error:
            if is_first and isinstance(error, ConfigError):
                raise
            for observer in observers:
                observer.failed(error)
            row.failed += 1
            # Messages that come due do not need the ledger.
            is_ledgers = isinstance(error, LedgerError)
            most = MOST_WAIT_FOR_LEDGER_SECONDS if is_ledgers else MOST_WAIT_AFTER_ERRORS_SECONDS
            seconds = wait_after(row.failed, most)
        else:
            for observer in observers:
                observer.ticked(done)
            seconds = _seconds_after(done, row, most_seconds)
        is_first = False
        stop.wait(seconds)


def _seconds_after(tick: Tick, row: _Row, most_seconds: float) -> float:
    report, row.failed = tick.report, 0
    if report is None:
        row.moved_nothing = 0
        if tick.ledger_error is not None:
            return MOST_WAIT_FOR_LEDGER_SECONDS
        due = tick.next_due
        return wait_for_next(due and due.instant, due and due.now, most_seconds)
    row.moved_nothing = 0 if tick.has_moved else row.moved_nothing + 1
    if tick.is_much and tick.has_moved:
        return LEAST_WAIT_SECONDS
    most = min(most_seconds, MOST_WAIT_FOR_LOCKED_SECONDS) if report.skipped else most_seconds
    return wait_after(row.moved_nothing, most)
