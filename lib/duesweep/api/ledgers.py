"""The ledger of a command that is no sweep: by delta-rs, or where only Spark can, by Spark."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from duesweep import config as configuration
from duesweep.core.errors import ConfigError
from duesweep.core.policy import LedgerWriter
from duesweep.ledger.base import is_path, local_folder
from duesweep.ledger.ledger import (
    Ledger,
    can_delta_rs_reach,
    open_for_reading,
    resolve_writer,
)
from duesweep.sweep.job import SweepContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def command_ledger(context: SweepContext, spark: "SparkSession | None" = None) -> Iterator[Ledger]:
    """The context's ledger, with this session or the one that is there. Starts Spark only if
    delta-rs cannot write the ledger.
    """
    root, writer = context.ledger_root, context.ledger_writer
    has_session = spark is not None or configuration.has_prepared_session()
    if not has_session and resolve_writer(writer, root) is LedgerWriter.DELTA_RS:
        yield context.open_ledger()
        return
    if not has_session and not is_path(root) and not configuration.jars():
        raise ConfigError(
            f"ledger.root is {root!r}, a catalog schema, and no Spark session is there to read it",
            advice="write ./ledger for a folder, or run this on the cluster",
        )
    from duesweep.drivers.spark import map_spark_errors, spark_session  # noqa: PLC0415 - takes seconds

    with map_spark_errors():
        session = spark or spark_session(configuration.jars())
        yield context.open_ledger(session)


@contextmanager
def reading_ledger(context: SweepContext, spark: "SparkSession | None" = None) -> Iterator[Ledger]:
    """The same to read only: without Spark for a local folder, whoever writes there."""
    root = context.ledger_root
    if spark is None and local_folder(root) is not None and can_delta_rs_reach(root):
        yield open_for_reading(root, context.timeouts)
        return
    with command_ledger(context, spark) as ledger:
        yield ledger
