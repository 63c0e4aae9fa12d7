"""Which rows of the ledger's tables a reader wants. Both writers read them, too."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from duesweep.core.message import ENCLOSED_MESSAGE_TYPES

# Columns by their names, as Python's values. Instants are aware, headers are a dict.
LedgerRow = dict[str, Any]

# May be asked for as a column of tables with headers: the header of that name, or NULL. All headers
# of many rows would take much memory.
ENCLOSED_TYPES = ENCLOSED_MESSAGE_TYPES

# The column that has the number of rows, where equal rows are counted.
COUNT = "rows"


class Among(NamedTuple):
    """The column has one of the values."""

    column: str
    values: Sequence[str]


class Between(NamedTuple):
    """The column is an instant from `start` (included) to `end` (not included); None: no limit."""

    column: str
    start: datetime | None = None
    end: datetime | None = None


# All of them have to hold. The storage skips what statistics say cannot fit.
Condition = Among | Between
