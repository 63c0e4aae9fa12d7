"""How many of its messages a slice may claim (`sweep --max-messages`)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Share:
    """At most `most` messages; None: all that there are. `claimed`: so many have been.

    Messages that are held back, locked or gone use up none of it: otherwise the same ones could use
    up all of it in each sweep, and no other message would ever go.
    """

    most: int | None = None
    claimed: int = 0

    def room(self, wanted: int) -> int:
        """How many of so many messages may still be claimed."""
        return wanted if self.most is None else max(0, min(wanted, self.most - self.claimed))

    def cut(self, batches: Iterable[Sequence[str]]) -> Iterator[Sequence[str]]:
        """The batches, in parts with no more messages than may still be claimed when each is asked
        for; whole, if none may.
        """
        for batch in batches:
            rest = batch
            while rest:
                end = self.room(len(rest)) or len(rest)
                yield rest[:end]
                rest = rest[end:]
