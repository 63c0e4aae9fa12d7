"""What a store's sessions may be able to do besides their contract."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from duesweep.stores.values import Horizon


@runtime_checkable
class KnowsDestinations(Protocol):
    """A driver's session of a store that finds destinations without a look into messages. Both are
    bounded in number, the commonest first, without the empty ones. One that has to look into them
    after all says none.
    """

    def due_destinations(self, horizon: Horizon) -> Sequence[str]:
        """Where messages go that are eligible. Cheap: those due for the longest are enough."""
        ...

    def stored_destinations(self) -> Sequence[str]:
        """Where all stored messages go, whatever their Due. Asked where `due_destinations` gives
        cause to.
        """
        ...
