"""Rows next to a delayed table whose message, sweep or endpoint is gone."""

from collections.abc import Sequence
from uuid import UUID

from duesweep.drivers.statements import retry_lost_transactions
from duesweep.stores.leftovers import DroppedSource, Leftovers
from duesweep.stores.sql_connection import SqlPart

# The binding is the last: as long as it is there, the source is known as one to forget.
_ROWS_OF_A_SOURCE = ("forget_attempts", "forget_pauses", "forget_limits", "unbind")


class SqlLeftovers(SqlPart, Leftovers):
    """The tables of all sources in a schema are the same."""

    def gone_counters(self, most: int) -> Sequence[str]:
        with self._at.looking_at_all():
            rows = self._session.rows("gone_counters", source=self.source, most=most)
        return [row.message_key for row in rows]

    def orphaned_journal(self) -> Sequence[UUID]:
        with self._at.looking_at_all():
            rows = self._session.rows("orphaned_journal")
        return [UUID(str(row.sweep_id)) for row in rows]

    def dropped(self) -> Sequence[DroppedSource]:
        rows = self._session.rows("dropped_sources")
        return [DroppedSource(row.source, row.delayed, int(row.unsettled)) for row in rows]

    @retry_lost_transactions
    def forget(self, source: str) -> int:
        total = 0
        with self._session.transaction():
            for name in _ROWS_OF_A_SOURCE:
                while some := self._session.execute(name, source=source):
                    total += some
        return total
