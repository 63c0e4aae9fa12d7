"""Ends a dispatch that makes no progress, because its tasks wait for a service that is silent.

The waits of duesweep's own tasks have limits. But Spark repeats a failed JDBC read up to four
times, and a custom store may wait without a limit.
"""

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from duesweep.dispatch_job import DispatchJob
from duesweep.spark_errors import SPARK_ERRORS
from duesweep.stores.base import Store
from duesweep.stores.values import SweepRun

_POLL_SECONDS = 0.5

Progress = tuple[int, int]


@dataclass(slots=True)
class Watchdog:
    """Calls `cancel` when the sweep makes no progress for `patience_seconds`, and sets `reason`;
    calls `progressed` when it makes some.

    It asks `store` for the progress. It does not judge before the first batch: executors may still
    be starting. Nor does it judge while the store takes no session or does not answer: then the
    tasks' own limits end them.
    """

    store: Store
    run: SweepRun
    patience_seconds: float
    cancel: Callable[[], object]
    reason: str | None = None
    progressed: Callable[[], object] | None = None
    _is_over: threading.Event = field(default_factory=threading.Event)
    _seen: Progress = (0, 0)
    # When progress was last seen; None: there is nothing to judge by.
    _since: float | None = None

    @contextmanager
    def watch(self) -> Iterator["Watchdog"]:
        """Watch what the block does."""
        # Two threads: a store that does not answer blocks the thread that asks, and the other
        # thread still has to judge.
        threads = [
            threading.Thread(target=work, name="duesweep watchdog", daemon=True)
            for work in (self._ask, self._judge)
        ]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._is_over.set()
            for thread in threads:
                # A thread whose store does not answer ends later by itself.
                thread.join(_POLL_SECONDS)

    def _ask(self) -> None:
        while not self._is_over.is_set():
            try:
                with self.store.open_driver() as session:
                    while not self._is_over.wait(_POLL_SECONDS):
                        self._note(session.progress(self.run.sweep_id))
            except Exception:  # noqa: BLE001 - a custom store may raise anything
                self._since = None
                self._is_over.wait(_POLL_SECONDS)

    def _note(self, seen: Progress) -> None:
        if seen != self._seen or (self._since is None and seen != (0, 0)):
            self._seen, self._since = seen, monotonic()
            if self.progressed is not None:
                self.progressed()

    def _judge(self) -> None:
        while not self._is_over.wait(_POLL_SECONDS):
            since = self._since
            if since is None or monotonic() - since < self.patience_seconds:
                continue
            self.reason = (
                f"No slice has made progress for {self.patience_seconds:.0f} s, so the sweep was "
                "ended: check whether the store, a queue's server, or a pooler or proxy before one "
                "of them, is stuck (timeouts.silence_seconds says how long to wait)"
            )
            # In every round: Spark may not have started the job when it was cancelled first.
            with suppress(*SPARK_ERRORS):
                self.cancel()


@contextmanager
def make_cancellable(spark: SparkSession) -> Iterator[Callable[[], object]]:
    """Returns a function that cancels all that Spark does for this thread within the block."""
    tag = f"duesweep-{uuid.uuid4()}"
    try:
        context = spark.sparkContext
    except PySparkException:
        # Spark Connect has no context, but its sessions have tags.
        spark.addTag(tag)
        try:
            yield lambda: spark.interruptTag(tag)
        finally:
            spark.removeTag(tag)
        return
    context.addJobTag(tag)
    try:
        yield lambda: context.cancelJobsWithTag(tag)
    finally:
        # If the JVM is gone, the call that waited for it has reported that.
        with suppress(*SPARK_ERRORS):
            context.removeJobTag(tag)


@contextmanager
def watch_dispatch(
    spark: SparkSession,
    job: DispatchJob,
    patience_seconds: float,
    progressed: Callable[[], object] | None,
) -> Iterator[Watchdog]:
    """Watch what Spark does within the block, and cancel it when it makes no progress."""
    with (
        make_cancellable(spark) as cancel,
        Watchdog(
            job.store, job.run, patience_seconds, cancel, progressed=progressed
        ).watch() as watchdog,
    ):
        yield watchdog
