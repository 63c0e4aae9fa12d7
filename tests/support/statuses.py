"""Facts of endpoints, as the report gets them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from duesweep.operations.look import LATENESS, DestinationOutlook
from duesweep.operations.status import History, Status, Step, SweepLine, WaitingCounts

NOW = datetime(2026, 11, 23, 12, 30, tzinfo=UTC)
AGO = NOW - timedelta(hours=3)
OPTIONS = ("--config", "/a b.toml", "--endpoint", "Sales")
SWEEP = SweepLine(AGO, 1.5, "done", 9, 9, 0, 0, 0, 700, None)
_PLOT = [Step("08:00", 1)]


def due(destination: str = "Billing", **changes: Any) -> DestinationOutlook:
    """Three due messages for a destination."""
    one = DestinationOutlook(destination, 0, dict.fromkeys(LATENESS, 0) | {"up_to_1_d": 3})
    return one._replace(**changes)


def waiting(**changes: Any) -> WaitingCounts:
    """A store in which nothing waits."""
    values: dict[str, Any] = dict.fromkeys(("due", "hour", "day", "week", "later", "looked_at"), 0)
    values |= dict.fromkeys(("oldest_due", "oldest_eligible", "unsettled_since"))
    values |= {"pauses": (), "destinations": (), "held_back": (), "unsettled": 0, "hours": _PLOT}
    return WaitingCounts(now=NOW, **values | changes)


def history(**changes: Any) -> History:
    """A ledger with one good sweep."""
    values: dict[str, Any] = dict.fromkeys(("dispatched", "failed", "exhausted", "late"), 0)
    values |= {"sweeps": [SWEEP], "count": 1, "lateness_of": 9, "failing": (), "errors": ()}
    values |= dict.fromkeys(("rate", "backlog", "lateness"), _PLOT)
    return History(since=AGO, **values | changes)


def status(source: str = "nsb", **changes: Any) -> Status:
    """An endpoint without a fault."""
    values: dict[str, Any] = {"waiting": waiting(), "history": history(), "options": OPTIONS}
    return Status(source, **values | changes).judged()
