"""A second watcher, on Spark, for as long as much is due.

It is a process of its own: a JVM takes seconds to start and half a gigabyte, and whatever becomes
of it, the first watcher goes on. Both sweep at once, as any number of watchers may.
"""

import subprocess
import threading
import time
from collections.abc import Sequence

import structlog

from duesweep.core.errors import DuesweepError
from duesweep.core.policy import wait_after
from duesweep.watch.tick import Tick

_log = structlog.get_logger(__name__)

_MOST_BACK_OFF_SECONDS = 1_800.0
# 77 s after the first failure: a second start would most likely fail, too.
_FIRST_BACK_OFF = 8
_STOP_SECONDS = 60.0


class Helper:
    """An observer that starts `command` when much is due, one at a time. The command ends by itself
    when little is. One that fails is started again after a while. Watchers of several endpoints
    share it.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._failures = 0
        self._not_before = 0.0
        self._is_wanted, self._is_asked = True, False
        self._lock = threading.Lock()

    def ticked(self, tick: Tick) -> None:
        """Start it where there is enough for Spark."""
        with self._lock:
            self._look_after()
            may_start = self._is_wanted and time.monotonic() >= self._not_before
            if may_start and tick.is_much and self._process is None:
                self._start()

    def failed(self, error: DuesweepError) -> None:  # noqa: ARG002 - the contract's
        """See whether it has ended."""
        with self._lock:
            self._look_after()

    def stop(self, *, for_good: bool) -> None:
        """Ask it to stop after its batches in hand. Unless it is `for_good`, it is started again
        where much is due. It is asked once: a second signal would end it at once.
        """
        with self._lock:
            self._is_wanted = not for_good
            if self._process is not None and not self._is_asked:
                self._is_asked = True
                self._process.terminate()

    def close(self) -> None:
        """Stop it after its batches in hand, and wait for that."""
        self.stop(for_good=True)
        process = self._process
        if process is None:
            return
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start(self) -> None:
        try:
            self._process, self._is_asked = subprocess.Popen(self._command), False
        except OSError as error:
            self._back_off(str(error))
        else:
            _log.info("spark_started", process=self._process.pid)

    def _look_after(self) -> None:
        code = None if self._process is None else self._process.poll()
        if code is None:
            return
        self._process = None
        if code == 0 or self._is_asked:
            self._failures = 0
            _log.info("spark_ended")
        else:
            self._back_off(f"exit code {code}")

    def _back_off(self, reason: str) -> None:
        self._failures += 1
        seconds = wait_after(_FIRST_BACK_OFF + self._failures - 1, _MOST_BACK_OFF_SECONDS)
        self._not_before = time.monotonic() + seconds
        _log.error(
            "spark_failed",
            reason=reason,
            advice="this process goes on alone; see what Spark said above",
            next_try_in_seconds=round(seconds),
        )
