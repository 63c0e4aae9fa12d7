"""How a queue table of the SQL Server transport is made."""

from collections.abc import Mapping
from dataclasses import dataclass

from duesweep.core.headers import json as headers_json

# In tables of the older shape this column is NOT NULL and has no default.
_RECOVERABLE = "Recoverable"
_HEADERS, _NARROW = "Headers", "varchar"


@dataclass(frozen=True, slots=True)
class QueueShape:
    """How a queue table is made. `has_recoverable`: it is of the older shape. `is_narrow`: its
    headers hold the characters of one code page only, and any other would become a question mark.
    """

    has_recoverable: bool
    is_narrow: bool

    def headers(self, text: str) -> str:
        """Headers as the table can hold them."""
        return headers_json.escape_non_ascii(text) if self.is_narrow else text


def shape_of(columns: Mapping[str, str]) -> QueueShape:
    """The shape of a queue table with these columns and types."""
    return QueueShape(_RECOVERABLE in columns, columns[_HEADERS] == _NARROW)
