"""Whether a watcher does its work, for its monitors: a page of its port, a file, systemd."""

import os
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from errno import EACCES
from pathlib import Path
from typing import Any

from duesweep.core import logs
from duesweep.core.errors import ConfigError, make_printable, shorten
from duesweep.core.world import Waits
from duesweep.operations.look import NextDue
from duesweep.operations.run import Run
from duesweep.operations.watch import MOST_TICK_SECONDS

# How much later than after the longest wait a message may leave, and how long no batch may be
# committed.
_GRACE_SECONDS = 10.0
# A tick that is this long past its end hangs, whatever it waits for.
_HANGING_SECONDS = 30.0
_SOCKET_VARIABLE = "NOTIFY_SOCKET"


@dataclass(frozen=True, slots=True)
class _Known:
    """The state by the ticks so far. Times without a date are by `time.monotonic()`.

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
    that from memory, so it also answers while a tick hangs.
    """

    def __init__(self, source: str, most_seconds: float, waits: Waits | None = None) -> None:
        self._source = source
        self._patience = most_seconds + _GRACE_SECONDS
        self._waits = waits or Waits()
        self._known = _Known(time.monotonic())
        self._is_over = False
        self._lock = threading.Lock()

    def __call__(self, run: Run) -> None:
        """Note a tick. A ledger that cannot be written is still an error."""
        report, now = run.report, time.monotonic()
        with self._lock:
            known = self._known
            if run.is_lost:
                self._known = replace(known, ended_at=now, error=run.error)
                return
            caught_up_at = known.caught_up_at
            if run.is_caught_up or caught_up_at is None:
                # It found the messages that were due at its beginning; a shorter run may have done
                # so later.
                caught_up_at = max(now - run.seconds, caught_up_at or 0.0)
            self._known = _Known(
                ended_at=now,
                caught_up_at=caught_up_at,
                last_good=datetime.now(UTC),
                error=run.ledger_error,
                next_due=run.next_due,
                dispatched=known.dispatched + (report.dispatched if report else 0),
            )

    def end(self, error: str | None = None) -> None:
        """Note that the watcher has ended, by this error; None: it was to end."""
        self._is_over = True
        if error is not None:
            with self._lock:
                self._known = replace(self._known, error=error)

    @property
    def was_well(self) -> bool:
        """Whether a tick has ended without an error."""
        return self._known.last_good is not None

    @property
    def behind_seconds(self) -> float | None:
        """How old a message may be at most that could be delivered now; None: not known yet."""
        known = (self._known.caught_up_at, self._waits.caught_up_at)
        caught_up_at = max((at for at in known if at is not None), default=None)
        return None if caught_up_at is None else time.monotonic() - caught_up_at

    @property
    def is_well(self) -> bool:
        """Whether messages that can be delivered leave in time, or batches are being committed."""
        behind, progressed_at = self.behind_seconds, self._waits.progressed_at
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
    """An observer that touches a file after a good tick, if all of `healths` are well. Raises
    `ConfigError` for a file that it could not touch now.
    """

    def __init__(self, file: Path, healths: Sequence[Health]) -> None:
        self._file, self._healths = file, healths
        self._is_failing = False
        try:
            if not file.exists():
                # Not left there: monitors would take it for a good tick.
                file.touch()
                file.unlink()
            elif not os.access(file, os.W_OK):
                raise PermissionError(EACCES, os.strerror(EACCES), str(file))
        except OSError as error:
            raise ConfigError(
                f"The health file {file} cannot be written: {error.strerror}",
                advice="check --health-file, and who may write there",
            ) from error

    def __call__(self, run: Run) -> None:
        """Touch it, or leave it as it is."""
        if run.is_lost or not all(health.is_well for health in self._healths):
            return
        try:
            self._file.touch()
        except OSError as error:
            # A watcher that stopped for its health file would do more harm than good.
            if not self._is_failing:
                logs.error("health_file_failed", file=str(self._file), error=str(error))
            self._is_failing = True
        else:
            if self._is_failing:
                logs.info("health_file_written", file=str(self._file))
            self._is_failing = False


class Systemd:
    """An observer that tells systemd, where that started this process; else it does nothing. This
    is sd_notify(3) without its library.

    It gives no sign of life while one of `healths` hangs: systemd then starts the process again.
    """

    def __init__(self, healths: Sequence[Health]) -> None:
        self._healths = healths
        self._is_ready = False

    def __call__(self, run: Run) -> None:
        """READY after the first good tick, and a sign of life after each. Also after an error: to
        start the process again would not help.
        """
        if run.is_lost:
            self._live(f"STATUS={shorten(make_printable(run.error or ''))}")
            self._is_ready = False
            return
        if not self._is_ready:
            self._is_ready = True
            _notify("READY=1", "STATUS=Sweeping as messages come due")
        self._live()

    def close(self) -> None:
        """The watcher ends on purpose."""
        _notify("STOPPING=1")

    def _live(self, *lines: str) -> None:
        is_hanging = any(health.is_hanging for health in self._healths)
        _notify(*([] if is_hanging else ["WATCHDOG=1"]), *lines)


def _notify(*lines: str) -> None:
    """A datagram to the socket that the environment names; `@` begins an abstract name."""
    address = os.environ.get(_SOCKET_VARIABLE)
    if not address:
        return
    name = "\0" + address[1:] if address.startswith("@") else address
    # A watcher continues without systemd's socket.
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sent:
        sent.connect(name)
        sent.sendall("\n".join(lines).encode())
