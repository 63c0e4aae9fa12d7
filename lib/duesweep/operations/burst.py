"""A sweep on Spark next to a watcher, while more is due than a watcher should sweep alone.

It is an ordinary `duesweep sweep --json` in a process of its own: a JVM takes seconds to start and
half a gigabyte, and whatever happens to it, the watcher continues. Both sweep at once, as any
number of sweeps may. It ends by itself; for the next backlog it is started again. Its standard
input ends with the watcher, and it stops then: a watcher that is killed and started again would
otherwise start a second JVM next to the first.
"""

import json
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from tempfile import TemporaryFile
from typing import IO, Any

import msgspec

from duesweep.core import logs
from duesweep.core.account import SweepReport
from duesweep.core.errors import ExitCode
from duesweep.core.policy import wait_after
from duesweep.operations.run import Run
from duesweep.operations.watch import Observer

_MOST_BACK_OFF_SECONDS = 1_800.0
# 77 s after the first failure: a second start would most likely fail as well.
_FIRST_BACK_OFF = 8
_STOP_SECONDS = 60.0


class Burst:
    """Starts `command` when a run says that there was enough for Spark, one at a time, and tells
    its results to the observers of the watcher's own ticks. One that fails is started
    again after a while. Watchers of several endpoints share it.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._document: IO[bytes] | None = None
        self._began = 0.0
        self._failures = 0
        self._not_before = 0.0
        self._is_wanted, self._is_asked = True, False
        # The observers, and the runs that they have not got yet, by sources.
        self._observers: dict[str, Sequence[Observer]] = {}
        self._runs: dict[str, list[Run]] = {}
        self._lock = threading.Lock()

    def observer(self, source: str, observers: Sequence[Observer]) -> Observer:
        """An observer of one endpoint. Its other `observers` get its sweeps on Spark, in
        the thread of its ticks.
        """
        self._observers[source] = observers

        def observe(run: Run) -> None:
            with self._lock:
                self._look_after()
                may_start = self._is_wanted and time.monotonic() >= self._not_before
                if may_start and run.needs_spark and self._process is None:
                    self._start()
            self._tell(source)

        return observe

    def stop(self, *, for_good: bool) -> None:
        """Ask it to stop after its current batches. Unless it is `for_good`, it is started again
        for the next backlog. It is asked once: a second signal would end it at once.
        """
        with self._lock:
            self._is_wanted = not for_good
            if self._process is not None and not self._is_asked:
                self._is_asked = True
                self._process.terminate()

    def close(self) -> None:
        """Stop it after its current batches, wait for that, and report its runs."""
        self.stop(for_good=True)
        if (process := self._process) is not None:
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        with self._lock:
            self._look_after()
        for source in self._observers:
            self._tell(source)

    def _tell(self, source: str) -> None:
        for run in self._runs.pop(source, ()):
            for observer in self._observers[source]:
                observer(run)

    def _start(self) -> None:
        try:
            with ExitStack() as stack:
                document = stack.enter_context(TemporaryFile(prefix="duesweep-burst-"))
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=document
                )
                self._document = document
                stack.pop_all()
        except OSError as error:
            self._back_off(str(error))
        else:
            self._is_asked, self._began = False, time.monotonic()
            logs.info("spark_started", process=self._process.pid)

    def _look_after(self) -> None:
        if self._process is None or (code := self._process.poll()) is None:
            return
        assert self._process.stdin is not None
        assert self._document is not None
        self._process.stdin.close()
        self._process = None
        with self._document as document:
            document.seek(0)
            runs = runs_of(document.read(), time.monotonic() - self._began)
        for run in runs:
            self._runs.setdefault(run.source, []).append(run)
        # A sweep whose messages failed did its work; one of several that found nothing to do does
        # not make up for one that was lost.
        if self._is_asked or (runs and not any(run.is_lost for run in runs)):
            self._failures = 0
            logs.info("spark_ended")
        else:
            self._back_off(f"exit code {code}")

    def _back_off(self, reason: str) -> None:
        self._failures += 1
        seconds = wait_after(_FIRST_BACK_OFF + self._failures - 1, _MOST_BACK_OFF_SECONDS)
        self._not_before = time.monotonic() + seconds
        logs.error(
            "spark_failed",
            reason=reason,
            advice="this process continues without Spark; see Spark's error above",
            next_try_in_seconds=round(seconds),
        )


def runs_of(document: bytes, seconds: float) -> list[Run]:
    """The runs in a sweep's document; none if it is no document. `seconds` are the seconds of
    the process: a run began no earlier, so no message is thought to have been seen that was not.
    """
    try:
        told = json.loads(document.splitlines()[-1])
        # One that an error ended before its settings were read has no name.
        return [_run_of(each, seconds) for each in told.get("sources", [told]) if each["source"]]
    except (AttributeError, LookupError, TypeError, ValueError, msgspec.ValidationError):
        # It broke off, or another version of this package wrote it.
        return []


def _run_of(told: Mapping[str, Any], seconds: float) -> Run:
    report = msgspec.convert(told, SweepReport, strict=False) if told["sweep_id"] else None
    return Run(
        told["source"],
        told["outcome"],
        told["exit_code"],
        seconds=seconds,
        report=report,
        error=told["error"],
        is_late=told["exit_code"] == ExitCode.LATE,
    )
