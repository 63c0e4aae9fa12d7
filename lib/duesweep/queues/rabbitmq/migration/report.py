"""What a migration did, as values."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from duesweep.queues.rabbitmq.migration.plan import Poison


@dataclass(slots=True)
class LevelReport:
    """One queue of the first ladder. `waiting` were there at first. Of those that are elsewhere
    now, `redelivered` had been handed out before, to a run that was interrupted perhaps: so many
    may be there twice. `left` are still in the queue.
    """

    queue: str
    waiting: int
    moved: int = 0
    poison: int = 0
    left: int = 0
    redelivered: int = 0


@dataclass(slots=True)
class MigrationReport:
    """All levels, highest first; why messages were left or taken for poison, and how many each."""

    levels: list[LevelReport] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    is_stopped: bool = False

    @property
    def moved(self) -> int:
        """Messages in the second ladder now."""
        return sum(level.moved for level in self.levels)

    @property
    def poison(self) -> int:
        """Messages in the queue for poison now."""
        return sum(level.poison for level in self.levels)

    @property
    def left(self) -> int:
        """Messages still on the levels that were gone through."""
        return sum(level.left for level in self.levels)

    @property
    def redelivered(self) -> int:
        """Messages that may be there twice now."""
        return sum(level.redelivered for level in self.levels)

    def note_poison(self, poison: Poison) -> None:
        """Say why, and where it was to be: in its own queue its routing key is lost."""
        where = f"for {poison.destination}" if poison.destination else "for nobody"
        self.reasons[f"poison {where}: {poison.reason}"] += 1

    def note_left(self, destination: str | None, reason: str) -> None:
        """Say why a message could not be moved."""
        self.reasons[f"left, for {destination or 'nobody'}: {reason}"] += 1


class MigrationProgress(Protocol):
    """Who looks on."""

    @property
    def is_stopped(self) -> bool:
        """Whether to end soon: what is on its way is finished first."""
        ...

    def tell(self, level: LevelReport) -> None:
        """A level has begun, or gone on."""
        ...
