"""The upkeep of a configuration's store and ledger."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from duesweep import wiring
from duesweep.api.ledgers import command_ledger
from duesweep.config import Config
from duesweep.maintain.maintain import Maintained, Rules, maintain
from duesweep.maintain.report import MaintainReport
from duesweep.stores.abilities import refuse_outdated
from duesweep.stores.auditing import CanBeAudited
from duesweep.stores.steering import require
from duesweep.stores.upkeep import ForgetsSources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def maintain_source(
    config: Config, forget: Sequence[str] = (), spark: "SparkSession | None" = None
) -> MaintainReport:
    """Look after it. Raises `ConfigError` if the store cannot be looked after."""
    context = wiring.sweep_context(config)
    rules = Rules(config.ledger.keep_days, config.ledger.vacuum_days, forget)
    with context.store.open_driver() as session, command_ledger(context, spark) as ledger:
        refuse_outdated(session)
        session.check()
        for ability in (CanBeAudited, ForgetsSources):
            require(session, ability, "maintain", context.store.source)
        return maintain(cast("Maintained", session), ledger, rules)
