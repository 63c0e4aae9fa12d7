"""The parts of an operation: endpoints by their settings, an engine, the ledger."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from duesweep import config as configuration
from duesweep.config import Config, EndpointSettings, load
from duesweep.core import logs
from duesweep.core.errors import (
    ConfigError,
    DuesweepError,
    Problem,
    SparkError,
)
from duesweep.core.policy import LedgerWriter
from duesweep.ledger.base import CHANGES, TABLES, is_path, local_folder, table_name
from duesweep.ledger.ledger import (
    Ledger,
    can_delta_rs_reach,
    open_ledger,
    require_delta_rs_root,
)
from duesweep.operations.endpoint import Endpoint
from duesweep.sweep.job import SweepContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from duesweep.sweep.job import Engine

_PROCESS = 'set sweep.engine = "process"'


def open_endpoint(config: Config, options: Sequence[str] = ()) -> Endpoint:
    """The endpoint of these settings. Raises `ConfigError`."""
    endpoint = Endpoint(config, options=options)
    endpoint.context  # noqa: B018 - it raises their faults
    return endpoint


def endpoints_of(
    settings: Sequence[EndpointSettings], overrides: Sequence[str]
) -> tuple[list[Endpoint], list[tuple[str, DuesweepError]]]:
    """The endpoints, and the names of those whose settings are wrong, with the error."""
    endpoints: list[Endpoint] = []
    failures: list[tuple[str, DuesweepError]] = []
    for each in settings:
        try:
            endpoints.append(open_endpoint(load(each, overrides), each.options))
        except DuesweepError as error:
            failures.append((each.label, error))
    return endpoints, failures


def drivers_spark() -> ModuleType:
    """The module that knows PySpark. Raises `SparkError` without PySpark."""
    try:
        from duesweep.drivers import spark  # noqa: PLC0415 - takes seconds
    except ModuleNotFoundError as error:
        if error.name not in {"py4j", "pyspark"}:
            raise
        raise SparkError(
            "PySpark is not installed", transient=False, advice="install duesweep[spark]"
        ) from error
    return spark


def open_spark(root: str | None = None, given: "SparkSession | None" = None) -> "SparkSession":
    """The `given` session, else an existing one, else a new one. If PySpark is missing and the
    ledger's `root` is the reason for it, the error says which one needs none.
    """
    try:
        spark = drivers_spark()
    except SparkError as error:
        if root is None or can_delta_rs_reach(root):
            raise
        way = "set it to a folder without %, or to s3:, abfss: or gs:"
        raise SparkError(
            f"{error.text}, and only Spark can write the ledger at {root!r}, which is ledger.root",
            transient=False,
            advice=f"{way if is_path(root) else f'write ./{root} for a folder'}, or {error.advice}",
        ) from error
    if given is not None:
        spark.refuse_stopped(given)
        return given
    logs.step("starts Spark")
    session: SparkSession = spark.spark_session(configuration.spark_start())
    return session


def make_spark_ready() -> None:
    """Fetch the jars for a session of this process, so that later nothing waits for them."""
    from duesweep.drivers.spark_start import launch  # noqa: PLC0415 - few commands need Spark

    if (options := configuration.spark_start()) is not None:
        launch(options)


def can_start_spark() -> bool:
    """Whether a session is there, or nothing is missing for one, as far as that shows without a
    start.
    """
    from duesweep.drivers.spark_start import check_start  # noqa: PLC0415 - few commands need Spark

    options = configuration.spark_start()
    if configuration.has_prepared_session() or options is None or options.remote is not None:
        return True
    try:
        check_start()
    except ConfigError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Which sweeps Spark dispatches: sweeps of `spark_from` messages or more; 0: all; None: none.
    `needs_spark`: there is no sweep without it, because the settings say so, or it writes the
    ledger, even if it dispatches none.
    """

    spark_from: int | None
    needs_spark: bool

    def is_spark(self, count: Callable[[], int]) -> bool:
        """Whether Spark dispatches these messages; they are counted only if that matters."""
        if self.spark_from is None:
            return False
        return self.spark_from == 0 or count() >= self.spark_from


def choose_engine(
    context: SweepContext, spark: "SparkSession | None" = None, *, prefers_session: bool = True
) -> EngineChoice:
    """The choice by the settings; all sweeps are Spark's if `spark` is there, and if it is a
    session of this process and Spark `prefers_session`.
    """
    least = context.spark_from
    needs_spark = least == 0 or context.ledger_writer is LedgerWriter.SPARK
    if least is not None and (
        needs_spark
        or spark is not None
        or (prefers_session and configuration.has_prepared_session())
    ):
        least = 0
    return EngineChoice(least, needs_spark)


@contextmanager
def opened_engine(
    context: SweepContext,
    *,
    on_spark: bool,
    spark: "SparkSession | DuesweepError | None" = None,
) -> Iterator["Engine"]:
    """An engine `on_spark` or in this process; in this process also if there is no Spark that works
    and a sweep can do without: then the engine says why. `spark` is the session to use, or why
    it is missing; None: an existing one, else a new one, as `open_spark`.
    """
    # Nothing of a sweep is loaded if none begins.
    from duesweep.sweep.in_process import InProcessEngine  # noqa: PLC0415

    if not on_spark and context.ledger_writer is not LedgerWriter.SPARK:
        yield InProcessEngine()
        return
    needs_spark = choose_engine(context).needs_spark
    try:
        if isinstance(spark, DuesweepError):
            raise spark
        session = open_spark(context.ledger_root, spark)
        with drivers_spark().map_spark_errors():
            from duesweep.sweep.spark import SparkEngine, try_jdbc  # noqa: PLC0415 - loads Spark

            if on_spark:
                try_jdbc(session, context.store, can_do_without=not needs_spark)
    except (SparkError, ConfigError) as error:
        if needs_spark:
            raise
        why = Problem(error.text, f"{error.advice}, or {_PROCESS}" if error.advice else _PROCESS)
        yield InProcessEngine(without_spark=why)
        return
    with drivers_spark().map_spark_errors():
        if on_spark:
            drivers_spark().refuse_settings(session)
            yield SparkEngine(session, context.timeouts)
        else:
            yield InProcessEngine(spark=session)


@contextmanager
def command_ledger(context: SweepContext, spark: "SparkSession | None" = None) -> Iterator[Ledger]:
    """The context's ledger, with this session or an existing one. Starts Spark only if
    delta-rs cannot write the ledger.
    """
    root = context.ledger_root
    has_session = spark is not None or configuration.has_prepared_session()
    if not has_session and context.ledger_writer is not LedgerWriter.SPARK:
        yield context.open_ledger()
        return
    # A Spark of this process alone has no catalog that outlives it.
    if not has_session and not is_path(root) and not configuration.has_spark_of_its_own():
        raise ConfigError(
            f"ledger.root is {root!r}, a catalog schema, and no Spark session is there to read it",
            advice="write ./ledger for a folder, or run this on the cluster",
        )
    session = open_spark(root, spark)
    with drivers_spark().map_spark_errors():
        yield context.open_ledger(session)


@contextmanager
def reading_ledger(context: SweepContext, spark: "SparkSession | None" = None) -> Iterator[Ledger]:
    """The same to read only: without Spark for a local folder, with either writer. If Spark writes
    it, and gave a table features that delta-rs cannot read, Spark reads it too.
    """
    root = context.ledger_root
    if spark is None and local_folder(root) is not None and can_delta_rs_reach(root):
        ledger = open_ledger(root, LedgerWriter.DELTA_RS, None, context.timeouts)
        is_sparks = context.ledger_writer is LedgerWriter.SPARK
        if not is_sparks or not ledger.read().beyond:
            yield ledger
            return
    with command_ledger(context, spark) as ledger:
        yield ledger


def table(endpoint: Endpoint, name: str) -> Any:
    """A table of the ledger: with `spark` a `pyspark.sql.DataFrame`, which reads nothing yet, else
    a `pyarrow.Table`. Raises `ConfigError` for a name that no table has.
    """
    root, names = endpoint.context.ledger_root, (*TABLES, CHANGES)
    if name not in names:
        known = f"one of {', '.join(names)}"
        raise ConfigError(f"The ledger has no table {name!r}", advice=known)
    if endpoint.spark is not None:
        return open_spark(root, endpoint.spark).read.table(table_name(root, name))
    require_delta_rs_root(root)
    from duesweep.ledger.delta_rs import DeltaRsTables  # noqa: PLC0415 - loads pyarrow

    return DeltaRsTables(root).arrow(name)
