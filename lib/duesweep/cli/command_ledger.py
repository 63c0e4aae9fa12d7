"""The ledger of a command that is no sweep: by delta-rs, or where only Spark can, by Spark."""

from collections.abc import Iterator
from contextlib import contextmanager

from duesweep import config as configuration
from duesweep.context import SweepContext
from duesweep.core.ledger_writer import LedgerWriter
from duesweep.ledger.ledger import Ledger
from duesweep.ledger.opening import open_ledger
from duesweep.ledger.writers import resolve_writer


@contextmanager
def command_ledger(context: SweepContext) -> Iterator[Ledger]:
    """The context's ledger. Starts Spark only if delta-rs cannot write the ledger."""
    root, writer = context.ledger_root, context.ledger_writer
    is_spark = configuration.has_prepared_session()
    if not is_spark and resolve_writer(writer, root) is LedgerWriter.DELTA_RS:
        yield open_ledger(root, writer, None, context.timeouts)
        return
    from duesweep.session import spark_session  # noqa: PLC0415 - takes seconds
    from duesweep.spark_errors import map_spark_errors  # noqa: PLC0415

    with map_spark_errors():
        yield open_ledger(root, writer, spark_session(configuration.jars()), context.timeouts)
