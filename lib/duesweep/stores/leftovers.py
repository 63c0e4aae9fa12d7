"""The contract of leftovers: rows next to a store whose message, sweep or endpoint is gone."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol
from uuid import UUID


class DroppedSource(NamedTuple):
    """A source whose delayed table does not exist any more. `unsettled`: how many sweeps and
    commands of it the ledger may lack.
    """

    source: str
    delayed: str
    unsettled: int


class Leftovers(Protocol):
    """What `audit` reports and `maintain` removes. It locks as little as `People`, and messages
    that others change may be missing, or be there still.
    """

    def gone_counters(self, most: int) -> Sequence[str]:
        """The keys of retry counters whose messages are not stored, up to `most`."""

    def orphaned_journal(self) -> Sequence[UUID]:
        """Sweeps and commands, of any source, of which the journal has rows that no settler takes,
        because their own row is gone.
        """

    def dropped(self) -> Sequence[DroppedSource]:
        """The sources whose endpoints are gone."""

    def forget(self, source: str) -> int:
        """Delete a source's counters, pauses, limits and binding; how many rows."""
