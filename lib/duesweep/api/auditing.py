"""The audit of a context's store and ledger."""

from typing import TYPE_CHECKING

from duesweep.api.ledgers import reading_ledger
from duesweep.audit.audit import AuditReport, audit
from duesweep.stores.base import operators_of
from duesweep.sweep.job import SweepContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def audit_source(context: SweepContext, spark: "SparkSession | None" = None) -> AuditReport:
    """Compare store, journal and ledger. Raises `ConfigError` if the store cannot be audited."""
    operators = operators_of(context.store, "an audit")
    with operators.open_driver() as session, reading_ledger(context, spark) as ledger:
        session.check()
        return audit(session, ledger)
