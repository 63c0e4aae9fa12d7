"""What a migration did, as values."""

from collections import Counter
from dataclasses import dataclass, field

from duesweep.queues.rabbitmq.migration.plan import Poison


@dataclass(slots=True)
class LevelReport:
    """One queue of the first ladder. `waiting`: messages at the start. `left`: messages that are
    still there. `redelivered`: of those that were moved or are poison, how many the broker had
    delivered before, perhaps to an interrupted run; at most so many exist twice.
    """

    queue: str
    waiting: int
    moved: int = 0
    poison: int = 0
    left: int = 0
    redelivered: int = 0


@dataclass(slots=True)
class MigrationReport:
    """All levels, highest first. `reasons`: why messages were left or are poison, with counts."""

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
        """Messages that are still on the levels that were processed."""
        return sum(level.left for level in self.levels)

    @property
    def redelivered(self) -> int:
        """Messages that may exist twice now."""
        return sum(level.redelivered for level in self.levels)

    def note_poison(self, poison: Poison) -> None:
        """Count why a message is poison, with its destination, which the poison queue loses."""
        where = f"for {poison.destination}" if poison.destination else "for nobody"
        self.reasons[f"poison {where}: {poison.reason}"] += 1

    def note_left(self, destination: str | None, reason: str) -> None:
        """Count why a message could not be moved."""
        self.reasons[f"left, for {destination or 'nobody'}: {reason}"] += 1


class MigrationProgress:
    """Watches a migration, and can stop it. This one does neither."""

    @property
    def is_stopped(self) -> bool:
        """Whether to stop; messages in flight are finished first."""
        return False

    def tell(self, level: LevelReport) -> None:
        """Called when a level has begun or made progress."""
