"""Removes claimed messages from a table on SQL Server that has no index on its key."""

import json
from collections.abc import Sequence
from contextlib import suppress

from duesweep.core.message import Message
from duesweep.drivers.statements import Session
from duesweep.stores.sqlserver.claimed import ClaimedRows

# So many messages of one Due are removed by their keys, more of them as the Due's first.
_FEW = 4


class _OthersRemovedError(Exception):
    """Rows that were not claimed came among the first of a Due: go back, and remove by key."""


class RemovalByDue:
    """Looks for messages at their Dues. `removes_firsts`: the server can delete the first rows of
    an order.
    """

    def __init__(
        self,
        statements: Session,
        source: str,
        claimed: ClaimedRows,
        *,
        removes_firsts: bool,
    ) -> None:
        self._statements = statements
        self._source = source
        self._claimed = claimed
        self._removes_firsts = removes_firsts

    def remove(self, messages: Sequence[Message]) -> int:
        """Remove claimed messages; how many there were."""
        gone, claimed = self._claimed.by_due(messages), self._claimed.by_due()
        few: list[tuple[str, str]] = []
        removed = 0
        for due, keys in gone.items():
            if self._removes_firsts and len(keys) > _FEW:
                removed += self._remove_firsts(due, keys, claimed[due] - keys)
            else:
                few += [(due, key) for key in keys]
        return removed + self._remove_by_key(few)

    def _remove_firsts(self, due: str, keys: set[str], staying: set[str]) -> int:
        """Remove messages of one Due as the first of those that nobody else holds, but for those
        that stay, unless others have come among them.
        """
        kept = json.dumps([*staying, *self._claimed.excluded([due])])
        with suppress(_OthersRemovedError), self._statements.transaction():
            rows = self._statements.rows(
                "remove_first", source=self._source, rows=len(keys), due=due, kept=kept
            )
            if {str(row.message_key) for row in rows} != keys:
                raise _OthersRemovedError
            return len(rows)
        return self._remove_by_key([(due, key) for key in keys])

    def _remove_by_key(self, messages: Sequence[tuple[str, str]]) -> int:
        if not messages:
            return 0
        listed = json.dumps([{"due": due, "key": key} for due, key in messages])
        return self._statements.execute("remove", messages=listed)
