"""Whether a watcher does its work, for those who watch it: a file, and a page of its port."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from duesweep.api.look import NextDue
from duesweep.core.errors import DuesweepError
from duesweep.core.world import Waits
from duesweep.watch.tick import MOST_TICK_SECONDS, Tick

_log = structlog.get_logger(__name__)

# How much later than after the longest wait a message may leave, and how long no batch may be
# committed.
_GRACE_SECONDS = 10.0
# A tick that is this long past its end hangs, whatever it waits for.
_HANGING_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class _Known:
    """What the ticks so far told. Times without a date are by `time.monotonic()`.

    All that was due at `caught_up_at` and could be delivered has been; None: no tick ended well.
    """

    ended_at: float
    caught_up_at: float | None = None
    last_good: datetime | None = None
    error: str | None = None
    next_due: NextDue | None = None
    dispatched: int = 0


class Health:
    """An observer that knows whether messages leave in time; a server's thread may ask it. It knows
    that from memory, so it answers while a tick hangs, too.
    """

    def __init__(self, source: str, most_seconds: float, waits: Waits | None = None) -> None:
        self._source = source
        self._patience = most_seconds + _GRACE_SECONDS
        self._waits = waits or Waits()
        self._known = _Known(time.monotonic())
        self._progressed_at: float | None = None
        self._is_over = False
        self._lock = threading.Lock()

    def ticked(self, tick: Tick) -> None:
        """Note a good tick. A ledger that cannot be written is an error all the same."""
        report, now = tick.report, time.monotonic()
        with self._lock:
            known = self._known
            is_caught_up = tick.is_caught_up or known.caught_up_at is None
            self._known = _Known(
                ended_at=now,
                # It found what was due at its beginning.
                caught_up_at=now - tick.seconds if is_caught_up else known.caught_up_at,
                last_good=datetime.now(UTC),
                error=tick.ledger_error,
                next_due=tick.next_due,
                dispatched=known.dispatched + (report.dispatched if report else 0),
            )

    def failed(self, error: DuesweepError) -> None:
        """Note an error."""
        with self._lock:
            self._known = replace(self._known, ended_at=time.monotonic(), error=str(error))

    def progressed(self) -> None:
        """Note that a batch was committed, or that all that is left waits for its limit."""
        self._progressed_at = time.monotonic()

    def end(self) -> None:
        """Note that nobody watches any more."""
        self._is_over = True

    @property
    def behind_seconds(self) -> float | None:
        """How old a message may be at most that could be delivered now; None: not known yet."""
        caught_up_at = self._known.caught_up_at
        return None if caught_up_at is None else time.monotonic() - caught_up_at

    @property
    def is_well(self) -> bool:
        """Whether messages that can be delivered leave in time, or batches are being committed."""
        behind, progressed_at = self.behind_seconds, self._progressed_at
        if behind is None or self._is_over:
            return False
        if behind <= self._patience:
            return True
        return progressed_at is not None and time.monotonic() - progressed_at <= _GRACE_SECONDS

    @property
    def is_hanging(self) -> bool:
        """Whether ticks do not even end with an error any more."""
        most = self._patience + MOST_TICK_SECONDS + _HANGING_SECONDS
        return not self._is_over and time.monotonic() - self._known.ended_at > most

    def document(self) -> dict[str, Any]:
        """What `/health` shows."""
        known, behind = self._known, self.behind_seconds
        return {
            "source": self._source,
            "is_well": self.is_well,
            "last_good_tick": known.last_good and known.last_good.isoformat(),
            "error": known.error,
            "next_due": known.next_due and known.next_due.instant.isoformat(),
            "dispatched": known.dispatched,
            "behind_seconds": None if behind is None else round(behind, 1),
            "waiting": [
                {"for": each.what, "seconds": round(each.seconds, 1), "reason": each.why}
                for each in self._waits.long()
            ],
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
