"""The upkeep of a configuration's store and ledger."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from duesweep.api.ledgers import command_ledger
from duesweep.config import Config
from duesweep.config.adapters.endpoint import sweep_context
from duesweep.maintain.maintain import Rules, maintain
from duesweep.maintain.report import MaintainReport
from duesweep.stores.base import operators_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def maintain_source(
    config: Config, forget: Sequence[str] = (), spark: "SparkSession | None" = None
) -> MaintainReport:
    """Look after it. Raises `ConfigError` if the store cannot be looked after."""
    context = sweep_context(config)
    rules = Rules(config.ledger.keep_days, config.ledger.vacuum_days, forget)
    operators = operators_of(context.store, "maintenance")
    with operators.open_driver() as session, command_ledger(context, spark) as ledger:
        session.check()
        return maintain(session, ledger, rules)
