"""Whether a sweep met the objective `slo.lateness_seconds`."""

from duesweep.core.account import SweepReport
from duesweep.core.errors import ConfigError, LedgerError
from duesweep.ledger.base import Among, Condition
from duesweep.ledger.ledger import open_for_reading
from duesweep.sweep.job import SweepContext

_COLUMNS = ("lateness_ms", "attempts")


def misses_objective(context: SweepContext, report: SweepReport) -> bool:
    """Whether the sweep dispatched a message later than the objective at its first attempt; False
    without an objective. A message that had failed before was in back-off, so it does not count.

    The ledger tells the attempts. Where it cannot be read, all messages count.
    """
    seconds, longest = context.objective_seconds, report.lateness_max_ms
    if seconds is None or longest is None or longest <= seconds * 1_000:
        return False
    if report.ledger_error is not None:
        return True
    conditions: tuple[Condition, ...] = (
        Among("sweep_id", report.sweep_ids),
        Among("outcome", ("dispatched",)),
    )
    try:
        ledger = open_for_reading(context.ledger_root, context.timeouts)
        return any(
            row["attempts"] == 1 and (row["lateness_ms"] or 0) > seconds * 1_000
            for row in ledger.rows("tombstones", _COLUMNS, *conditions)
        )
    except (LedgerError, ConfigError):
        return True
