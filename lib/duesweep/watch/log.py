"""What a watcher logs: a line a minute about what it moved, and one where things go wrong or right
again.
"""

import time

import structlog

from duesweep.core.account import SweepReport
from duesweep.core.errors import DuesweepError, make_printable
from duesweep.core.world import Wait, Waits
from duesweep.watch.tick import Tick

_log = structlog.get_logger(__name__)

_EVERY_SECONDS = 60.0


class Log:
    """An observer that logs. `close` logs what is left to tell. `look` has to be called now and
    then, by another thread than the one that may wait.
    """

    def __init__(self, source: str, waits: Waits | None = None) -> None:
        self._source = source
        self._waits = waits or Waits()
        self._told: dict[str, Wait] = {}
        self._error: str | None = None
        self._since = time.monotonic()
        self._clear()

    def ticked(self, tick: Tick) -> None:
        """Count what was moved; tell that an error has passed. That rows wait for the ledger is one
        of the waits.
        """
        report = tick.report
        self._note(None)
        if report is not None:
            self._count(report)
        if time.monotonic() - self._since >= _EVERY_SECONDS:
            self.close()

    def failed(self, error: DuesweepError) -> None:
        """Tell an error, once for as long as it stays the same."""
        self._note(str(error))

    def look(self) -> None:
        """Tell each wait once that takes long, and its end."""
        long = {each.what: each for each in self._waits.long()}
        told, self._told = self._told, long
        for what, wait in long.items():
            if what not in told or told[what].since != wait.since:
                why = make_printable(wait.why)
                _log.warning("waiting", source=self._source, waits_for=what, reason=why)
        for what, wait in told.items():
            if what not in long:
                seconds = round(wait.seconds, 1)
                _log.info("waited", source=self._source, waits_for=what, seconds=seconds)

    def close(self) -> None:
        """Log what was moved since the last time, if anything was."""
        took, self._since = time.monotonic() - self._since, time.monotonic()
        if not self._sweeps:
            return
        _log.info(
            "swept",
            source=self._source,
            sweeps=self._sweeps,
            dispatched=self._dispatched,
            failed=self._failed,
            exhausted=self._exhausted,
            lateness_max_ms=self._latest_ms,
            seconds=round(took, 1),
        )
        self._clear()

    def _clear(self) -> None:
        self._sweeps = self._dispatched = self._failed = self._exhausted = 0
        self._latest_ms: int | None = None

    def _count(self, report: SweepReport) -> None:
        self._sweeps += 1
        self._dispatched += report.dispatched
        self._failed += report.failed
        self._exhausted += report.exhausted
        known = [ms for ms in (self._latest_ms, report.lateness_max_ms) if ms is not None]
        self._latest_ms = max(known, default=None)

    def _note(self, error: str | None) -> None:
        if error == self._error:
            return
        if error is not None:
            _log.error("trouble", source=self._source, error=make_printable(error))
        else:
            _log.info("trouble_is_over", source=self._source)
        self._error = error
