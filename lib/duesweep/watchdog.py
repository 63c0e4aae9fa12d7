"""Ends a dispatch that gets nowhere: one whose tasks wait for a service that says nothing.

What a task waits for in Python bounds itself. What Spark reads over JDBC it reads four times, and
whoever brings a store may have bounded nothing.
"""

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from duesweep.spark_errors import SPARK_ERRORS
from duesweep.stores.base import Store
from duesweep.stores.values import SweepRun

_POLL_SECONDS = 0.5

Progress = tuple[int, int]


@dataclass(slots=True)
class Watchdog:
    """`cancel`s what it watches once `store` has told of no progress for `patience_seconds` since
    it told of some; `reason` then says so. Before the first batch executors may still be starting,
    and a store that takes no session of ours, or does not answer, tells nothing: its tasks do.
    """

    store: Store
    run: SweepRun
    patience_seconds: float
    cancel: Callable[[], object]
    reason: str | None = None
    _is_over: threading.Event = field(default_factory=threading.Event)
    _seen: Progress = (0, 0)
    # None: there is nothing to judge by.
    _since: float | None = None

    @contextmanager
    def watching(self) -> Iterator["Watchdog"]:
        """Watch what the block does."""
        # Two, since a store that does not answer keeps the one that asks from judging.
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
                # One whose store does not answer ends by itself, later.
                thread.join(_POLL_SECONDS)

    def _ask(self) -> None:
        while not self._is_over.is_set():
            try:
                with self.store.open_driver() as session:
                    while not self._is_over.wait(_POLL_SECONDS):
                        self._note(session.progress(self.run.sweep_id))
            except Exception:  # noqa: BLE001 - whatever a custom store raises tells nothing
                self._since = None
                self._is_over.wait(_POLL_SECONDS)

    def _note(self, seen: Progress) -> None:
        if seen != self._seen or (self._since is None and seen != (0, 0)):
            self._seen, self._since = seen, monotonic()

    def _judge(self) -> None:
        while not self._is_over.wait(_POLL_SECONDS):
            since = self._since
            if since is None or monotonic() - since < self.patience_seconds:
                continue
            self.reason = (
                f"No slice has got on for {self.patience_seconds:.0f} s, so that the sweep was "
                "ended: see whether the store, a queue's server, or a pooler or proxy before one "
                "of them, is stuck (timeouts.silence_seconds says how long to wait)"
            )
            # Again and again: Spark may not have begun what is to be cancelled.
            with suppress(*SPARK_ERRORS):
                self.cancel()


@contextmanager
def cancellable(spark: SparkSession) -> Iterator[Callable[[], object]]:
    """What cancels all that Spark does within the block, on this thread."""
    tag = f"duesweep-{uuid.uuid4()}"
    try:
        context = spark.sparkContext
    except PySparkException:
        # Spark Connect has no context, and only its tags are the session's.
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
        # What ended the JVM is told by whoever waited for it.
        with suppress(*SPARK_ERRORS):
            context.removeJobTag(tag)


@contextmanager
def watched(
    spark: SparkSession, store: Store, run: SweepRun, patience_seconds: float
) -> Iterator[Watchdog]:
    """A watchdog of what Spark does within the block."""
    with (
        cancellable(spark) as cancel,
        Watchdog(store, run, patience_seconds, cancel).watching() as watchdog,
    ):
        yield watchdog
