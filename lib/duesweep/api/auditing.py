"""The audit of a context's store and ledger."""

from typing import TYPE_CHECKING

from duesweep.api.ledgers import reading_ledger
from duesweep.audit.audit import AuditReport, audit
from duesweep.stores.abilities import refuse_outdated
from duesweep.stores.auditing import CanBeAudited
from duesweep.stores.steering import require
from duesweep.sweep.job import SweepContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def audit_source(context: SweepContext, spark: "SparkSession | None" = None) -> AuditReport:
    """Compare store, journal and ledger. Raises `ConfigError` if the store cannot be audited."""
    with context.store.open_driver() as session, reading_ledger(context, spark) as ledger:
        refuse_outdated(session)
        session.check()
        auditable = require(session, CanBeAudited, "audit", context.store.source)  # type: ignore[type-abstract] # a protocol
        return audit(auditable, ledger)
