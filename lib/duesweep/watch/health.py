"""Whether a watcher does its work, for those who watch it: a file, and a page of its port."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from duesweep.errors import DuesweepError
from duesweep.report.idle import NextDue
from duesweep.watch.tick import MOST_TICK_SECONDS, Tick

_log = structlog.get_logger(__name__)

# Beyond the longest wait and the longest tick, for a machine that is busy.
_GRACE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _Known:
    """What the last ticks told. `at` is when one last ended well, by `time.monotonic()`."""

    at: float
    last_good: datetime | None = None
    error: str | None = None
    next_due: NextDue | None = None
    dispatched: int = 0


class Health:
    """An observer that knows whether ticks end well; a server's thread may ask it."""

    def __init__(self, source: str, most_seconds: float) -> None:
        self._source = source
        self._patience = most_seconds + MOST_TICK_SECONDS + _GRACE_SECONDS
        self._known = _Known(time.monotonic())
        self._lock = threading.Lock()

    def ticked(self, tick: Tick) -> None:
        """Note a good tick. A ledger that cannot be written is an error all the same."""
        report = tick.report
        with self._lock:
            self._known = _Known(
                at=time.monotonic(),
                last_good=datetime.now(UTC),
                error=None if report is None else report.ledger_error,
                next_due=tick.next_due,
                dispatched=self._known.dispatched + (report.dispatched if report else 0),
            )

    def failed(self, error: DuesweepError) -> None:
        """Note an error."""
        with self._lock:
            known = self._known
            self._known = _Known(
                known.at, known.last_good, str(error), known.next_due, known.dispatched
            )

    @property
    def is_well(self) -> bool:
        """Whether a tick ended well lately: within the longest wait and the longest tick, and a
        minute more.
        """
        return time.monotonic() - self._known.at < self._patience

    def document(self) -> dict[str, Any]:
        """What `/health` shows."""
        known = self._known
        return {
            "source": self._source,
            "is_well": self.is_well,
            "last_good_tick": known.last_good and known.last_good.isoformat(),
            "error": known.error,
            "next_due": known.next_due and known.next_due.instant.isoformat(),
            "dispatched": known.dispatched,
        }


class HealthFile:
    """An observer that touches a file after a good tick, if all of `healths` are well."""

    def __init__(self, file: Path, healths: Sequence[Health]) -> None:
        self._file, self._healths = file, healths

    def ticked(self, tick: Tick) -> None:  # noqa: ARG002 - the contract's
        """Touch it."""
        if not all(health.is_well for health in self._healths):
            return
        try:
            self._file.touch()
        except OSError as error:
            # A watcher that stopped for its health file would do more harm than good.
            _log.error("health_file_failed", file=str(self._file), error=str(error))

    def failed(self, error: DuesweepError) -> None:
        """Leave it as it is."""
