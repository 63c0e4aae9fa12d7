"""What the page shows of one source, as values."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from duesweep.core.exhausted import ErrorGroup
from duesweep.core.finding import Finding
from duesweep.core.policy import Pause


class Step(NamedTuple):
    """A bar of a plot."""

    label: str
    messages: int


class SweepLine(NamedTuple):
    """A row of the ledger's `sweeps`; `seconds` is how long the sweep took."""

    start: datetime
    seconds: float
    outcome: str
    found: int
    dispatched: int
    failed: int
    exhausted: int
    left: int
    lateness_p95_ms: int | None
    reason: str | None


class Failing(NamedTuple):
    """Messages in back-off: they have failed, and are tried again. `last` is the last failure."""

    error_class: str
    destination: str | None
    messages: int
    last: datetime
    example: str


@dataclass(frozen=True, slots=True)
class History:
    """What the ledger tells since `since`. `sweeps` are the last ones, the newest first. `rate`
    has the messages that were dispatched in each step of time, `backlog` the most that a sweep of
    that time found due. `lateness` is about the last `lateness_of` dispatched messages.
    """

    since: datetime
    sweeps: Sequence[SweepLine]
    count: int
    dispatched: int
    failed: int
    exhausted: int
    rate: Sequence[Step]
    backlog: Sequence[Step]
    lateness: Sequence[Step]
    lateness_of: int
    failing: Sequence[Failing]
    errors: Sequence[ErrorGroup]

    @property
    def open_errors(self) -> int:
        """Errors that nobody has replayed or discarded."""
        return sum(group.open for group in self.errors)


@dataclass(frozen=True, slots=True)
class Waiting:
    """What the store tells at `now`, by its clock: `due` messages are due; so many more come due
    in the next `hour`, `day` and `week`, each counted from now, and `later`. `hours` are the next
    24.
    """

    now: datetime
    due: int
    hour: int
    day: int
    week: int
    later: int
    hours: Sequence[Step]
    pauses: Sequence[Pause]


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """All that the page shows of one source. `waiting` or `history` None: it could not be read, and
    `problems` say why. `findings` are the doctor's that are not good.
    """

    source: str
    waiting: Waiting | None
    history: History | None
    findings: Sequence[Finding] = ()
    problems: Sequence[str] = ()

    @property
    def is_known(self) -> bool:
        """Whether anything could be read."""
        return self.waiting is not None or self.history is not None
