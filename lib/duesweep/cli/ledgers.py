"""Opens the ledger for commands that do not sweep: without Java, unless Spark has to write it."""

from collections.abc import Iterator
from contextlib import contextmanager

from duesweep import config as configuration
from duesweep.context import SweepContext
from duesweep.core.ledger_writer import LedgerWriter
from duesweep.ledger.ledger import Ledger
from duesweep.ledger.opening import open_ledger
from duesweep.ledger.writers import resolve_writer


@contextmanager
def opened_ledger(context: SweepContext) -> Iterator[Ledger]:
    """The context's ledger. Starts Spark only where delta-rs cannot write it."""
    root, writer = context.ledger_root, context.ledger_writer
    if resolve_writer(writer, root) is not LedgerWriter.SPARK:
        yield open_ledger(root, writer, None, context.timeouts)
        return
    from duesweep.session import spark_session  # noqa: PLC0415 - starts Java
    from duesweep.spark_errors import map_spark_errors  # noqa: PLC0415

    with map_spark_errors():
        yield open_ledger(root, writer, spark_session(configuration.jars()), context.timeouts)
