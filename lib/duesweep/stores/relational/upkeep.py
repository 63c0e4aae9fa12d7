"""Upkeep of the rows that duesweep keeps of all sources beside a relational store."""

from collections.abc import Sequence
from dataclasses import dataclass

from duesweep.drivers.statements import Session, retry_lost_transactions
from duesweep.stores.upkeep import DroppedSource

# The binding is the last: as long as it is there, the source is known as one to forget.
_ROWS = ("forget_attempts", "forget_pauses", "forget_limits", "unbind")


@dataclass(frozen=True, slots=True)
class RelationalUpkeep:
    """See `SourceUpkeep`."""

    statements: Session

    def dropped(self) -> Sequence[DroppedSource]:
        """The sources whose delayed tables are gone."""
        rows = self.statements.rows("dropped_sources")
        return [DroppedSource(row.source, row.delayed, int(row.unsettled)) for row in rows]

    @retry_lost_transactions
    def forget(self, source: str) -> int:
        """Delete the rows of a source, in one transaction."""
        total = 0
        with self.statements.transaction():
            for name in _ROWS:
                while some := self.statements.execute(name, source=source):
                    total += some
        return total
