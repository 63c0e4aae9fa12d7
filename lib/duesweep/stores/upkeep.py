"""What a store may do for `duesweep maintain`: forget endpoints that are gone."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable


class DroppedSource(NamedTuple):
    """A source whose delayed table does not exist any more. `unsettled`: how many sweeps and
    commands of it the ledger may lack.
    """

    source: str
    delayed: str
    unsettled: int


class SourceUpkeep(Protocol):
    """The rows that duesweep keeps of all sources beside a store."""

    def dropped(self) -> Sequence[DroppedSource]:
        """The sources whose endpoints are gone."""
        ...

    def forget(self, source: str) -> int:
        """Delete a source's counters, pauses, limits and binding; how many rows."""
        ...


@runtime_checkable
class ForgetsSources(Protocol):
    """A driver's session whose store can forget sources."""

    def upkeep(self) -> SourceUpkeep:
        """The upkeep of its tables, on this session."""
        ...
