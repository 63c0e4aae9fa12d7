"""The destinations of a store that keeps them in a column."""

from collections.abc import Sequence

from duesweep.stores.relational.driver import RelationalDriverSession
from duesweep.stores.values import Horizon


class DestinationColumn(RelationalDriverSession):
    """To inherit besides a dialect's session: `KnowsDestinations`."""

    def due_destinations(self, horizon: Horizon) -> Sequence[str]:
        """Those of the messages that have been due for the longest."""
        rows = self._statements.rows("due_destinations", **self._pending(horizon))
        return [row.destination for row in rows]

    def stored_destinations(self) -> Sequence[str]:
        """Those of all messages."""
        with self._looking_at_all():
            return [row.destination for row in self._statements.rows("stored_destinations")]
