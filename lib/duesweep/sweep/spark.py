"""Slices as partitions of one Spark action: at scale, on executors."""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from zipimport import zipimporter

from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from duesweep.core import logs
from duesweep.core.errors import raise_interruption
from duesweep.core.policy import DEFAULT_TIMEOUTS, Slicing, Timeouts, slicing
from duesweep.core.world import Clock
from duesweep.drivers.spark import SPARK_ERRORS, cause
from duesweep.stores.base import Store
from duesweep.stores.due import Due, Horizon, JdbcSource, Slices
from duesweep.stores.sweeps import SweepRun
from duesweep.sweep.claim_keys import read_claim_keys
from duesweep.sweep.job import CutShort, Dispatched, Job, SweepContext
from duesweep.sweep.limits import dispatch_slice
from duesweep.sweep.stop import Stop

# A fresh cluster has two cores, as it says, until its executors have registered. A task takes a
# tenth of a second more than its messages.
_LEAST_ON_CLUSTER, _MOST_ROWS_ON_CLUSTER = 32, 25_000
# After how long a dispatch in which nothing is done says so.
_UNTOLD_SECONDS = 60.0
# Each row is about 80 kB.
_FETCH_ROWS = 50


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Reads claim keys over JDBC; partition i is slice i. `timeouts` say when a dispatch without
    progress is ended.
    """

    spark: SparkSession
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    name: str = "spark"
    without_spark: None = None

    def plan(self, due: Due, horizon: Horizon, context: SweepContext) -> Slices:
        return due.plan(horizon, self.slicing(context.slices, context.batch_size.rows))

    def slicing(self, wanted: int, batch_rows: int) -> Slicing:
        """As many as wanted. Else one for each core, and on a cluster more: its executors may come
        later than the session, more of them for waiting tasks, and they need not be equally fast.
        """
        if wanted or self._is_local:
            return slicing(wanted or self.cores, batch_rows)
        return slicing(self.tasks, batch_rows, _MOST_ROWS_ON_CLUSTER)

    @property
    def tasks(self) -> int:
        """How many tasks use all cores, also cores that a cluster gets later."""
        return self.cores if self._is_local else max(self.cores, _LEAST_ON_CLUSTER)

    @property
    def _is_local(self) -> bool:
        """Whether all cores are this machine's."""
        try:
            master = str(self.spark.conf.get("spark.master", ""))
        except PySparkException:
            # Some platforms hide it.
            return False
        return master.startswith("local") and not master.startswith("local-cluster")

    @property
    def cores(self) -> int:
        """How many tasks run at once."""
        try:
            return self.spark.sparkContext.defaultParallelism
        except PySparkException:
            # Spark Connect has no context. A range gets one partition for each core.
            partitions_df = self.spark.range(1_000).select(F.spark_partition_id().alias("part"))
            return partitions_df.distinct().count()

    def dispatch(self, due: Due, plan: Slices, job: Job) -> Dispatched:
        """Dispatch all slices, in one job of Spark."""
        # Nothing is journalled while all slices wait for a limit.
        patience = self.timeouts.plan_seconds(plan.found) + job.context.breaker.trigger_seconds
        store, world = job.context.store, job.context.world
        with (
            make_cancellable(self.spark, f"duesweep-{world.new_id()}") as cancel,
            Watchdog(store, job.run, world.clock, patience, cancel, job.stop).watch() as watching,
        ):
            try:
                run_slices(claim_keys_df(self.spark, due.jdbc(plan.found), plan), job)
            except SPARK_ERRORS as error:
                raise_interruption(error)
                # The journal has all batches; slices without an end count as cut.
                why = cause(error)
                end = CutShort(f"Spark ended the job: {why}", why.is_lasting)
                if watching.reason is not None:
                    end = CutShort(watching.reason)
                logs.error("dispatch_cut_short", sweep_id=str(job.run.sweep_id), error=end.reason)
                return Dispatched(end)
        return Dispatched()

    def close(self) -> None:
        """Executors keep no sessions."""


def try_jdbc(spark: SparkSession, store: Store, *, can_do_without: bool) -> None:
    """Raise Spark's error if it cannot read from the store for a reason that lasts, such as a JVM
    without the JDBC driver; if a sweep `can_do_without` Spark, also for one that may last: this
    process reads from the store. A dispatch tells the others, after it has tried again.
    """
    with store.open_driver() as session:
        source = session.due.jdbc()
    try:
        one_row_df(spark, source).schema  # noqa: B018 - it connects
    except SPARK_ERRORS as error:
        raise_interruption(error)
        why = cause(error)
        if why.is_lasting or (can_do_without and not why.may_pass):
            raise


def one_row_df(spark: SparkSession, source: JdbcSource) -> DataFrame:
    """One row, read over JDBC."""
    one = "(SELECT 1 AS number) AS one_row"
    return spark.read.jdbc(source.url, one, properties=source.properties)


def claim_keys_df(spark: SparkSession, source: JdbcSource, plan: Slices) -> DataFrame:
    """The claim keys of the plan.

    Columns: `claim_keys` and `sizes` of up to a thousand messages, as text separated by commas,
    `total`, the number of keys in the slice, and `chunk`, the place of the row in it. Partition i
    is slice i, without a shuffle between read and dispatch.
    """
    due_df = spark.read.jdbc(
        source.url,
        f"({plan.claim_keys_query}) AS due_messages",
        predicates=[f"slice = {plan.begin + number}" for number in range(len(plan.planned))],
        properties=source.properties | {"fetchsize": str(_FETCH_ROWS)},
    )
    return due_df.drop("slice")


def run_slices(claim_keys_df: DataFrame, job: Job) -> None:
    """Dispatch every slice (partition) of `claim_keys_df` in one Spark action."""
    # Its waits change while it is pickled, if other endpoints of a fleet share them; and each
    # executor lets its own messages go.
    shipped = replace(job, stop=Stop(), limited=None)

    def run(rows: Iterable[Row]) -> None:
        context = TaskContext.get()
        assert context is not None  # runs in a task only
        try:
            dispatch_slice(shipped, context.partitionId(), read_claim_keys(rows))
        finally:
            _forget_archives()

    claim_keys_df.foreachPartition(run)


def _forget_archives() -> None:
    """Forget which modules are in archives, so that the worker's next task begins at once.

    Before each task PySpark lets Python look again into every archive in which it has looked for a
    module, a JAR with thousands of files among them: 0.5 s of CPU (`setup_spark_files`). For a
    module that is imported later, Python looks again by itself.
    """
    for path, finder in [*sys.path_importer_cache.items()]:
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


POLL_SECONDS = 0.5

Progress = tuple[int, int]


@dataclass(slots=True)
class Watchdog:
    """Calls `cancel` when the sweep makes no progress for `patience_seconds`, and sets `reason`.
    It notes the progress in the `waits` of `stop`.

    It asks `store` for the progress. It does not judge before the first batch: executors may still
    be starting, or a cluster may have none free. Nor does it judge while the store accepts no
    session or does not answer: then the tasks' own limits end them. But a `stop` that is wanted
    begins the time: no task may be there to heed it.
    """

    store: Store
    run: SweepRun
    clock: Clock
    patience_seconds: float
    cancel: Callable[[], object]
    stop: Stop = field(default_factory=Stop)
    reason: str | None = None
    _is_over: threading.Event = field(default_factory=threading.Event)
    _seen: Progress = (0, 0)
    # When progress was last seen; None: without a measure.
    _since: float | None = None

    @contextmanager
    def watch(self) -> Iterator["Watchdog"]:
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
                thread.join(POLL_SECONDS)

    def _ask(self) -> None:
        while not self._is_over.is_set():
            try:
                with self.store.open_driver() as session:
                    while not self._is_over.wait(POLL_SECONDS):
                        self._note(session.sweeps.progress(self.run.sweep_id))
            except Exception:  # noqa: BLE001 - a custom store may raise anything
                self._since = None
                self._is_over.wait(POLL_SECONDS)

    def _note(self, seen: Progress) -> None:
        if seen != self._seen or (self._since is None and seen != (0, 0)):
            self._seen, self._since = seen, self.clock.seconds()
            self.stop.waits.progressed()

    def _judge(self) -> None:
        stopped_at: float | None = None
        began, is_told = self.clock.seconds(), False
        while not self._is_over.wait(POLL_SECONDS):
            waited = self.clock.seconds() - began
            if not is_told and self._seen == (0, 0) and waited >= _UNTOLD_SECONDS:
                is_told = True
                # A cluster may give executors later, so the sweep continues.
                logs.warning(
                    "no_batch_yet",
                    sweep_id=str(self.run.sweep_id),
                    reason=f"Spark's tasks have moved nothing for {waited:.0f} s: the sweep waits "
                    "for executors, or for the store. The page of Spark's master shows free "
                    "cores; --max-seconds ends such a wait",
                )
            if stopped_at is None and self.stop.is_wanted:
                stopped_at = self.clock.seconds()
            since = stopped_at if self._since is None else self._since
            if since is None or self.clock.seconds() - since < self.patience_seconds:
                continue
            self.reason = (
                f"No slice has made progress for {self.patience_seconds:.0f} s, so the sweep was "
                "ended: check whether the store, a queue's server, or a pooler or proxy before one "
                "of them, is stuck (timeouts.silence_seconds says how long to wait), and whether "
                "Spark got executors"
            )
            # In every round: Spark may not have started the job when it was cancelled first.
            with suppress(*SPARK_ERRORS):
                self.cancel()


@contextmanager
def make_cancellable(spark: SparkSession, tag: str) -> Iterator[Callable[[], object]]:
    """Returns a function that cancels all that Spark does for this thread within the block. No
    other block has the same tag.
    """
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
