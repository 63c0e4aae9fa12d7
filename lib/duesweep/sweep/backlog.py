"""The planned messages of one run that no sweep has taken yet, in parts.

A large plan is made once and swept in parts, each in a sweep of its own, so that the journal is
bounded. Without I/O.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from duesweep.core.policy import MOST_IN_A_SWEEP
from duesweep.stores.due import Horizon, Slices


class Part(NamedTuple):
    """Slices for one sweep. `shares`: see `Job`."""

    plan: Slices
    shares: tuple[int, ...] | None


@dataclass(slots=True)
class Backlog:
    """The `parts` of a plan by `horizon`, for one sweep each. `is_first`: the last sweep had the
    first one. `is_again`: all are swept, and the next sweep is for messages that they left.
    """

    horizon: Horizon | None = None
    parts: Sequence[Part] = ()
    is_first: bool = False
    is_again: bool = False

    @property
    def left(self) -> int:
        """How many messages are planned that no sweep has."""
        return sum(part.plan.found for part in self.parts)

    @property
    def is_later_part(self) -> bool:
        """Whether the last sweep had a part of the plan, and not the first one."""
        return not (self.is_first or self.is_again)

    def take(self, horizon: Horizon, plan: Slices, shares: Sequence[int] | None) -> None:
        """Sweep this plan, of whose slices each may claim its share; None: all of its own."""
        self.horizon, self.is_first = horizon, True
        self.parts = _parts(plan, shares) if plan.found else ()

    def next(self) -> Part:
        """The part for this sweep."""
        part, *self.parts = self.parts
        return part

    def end_sweep(self) -> None:
        """Note the end of a sweep."""
        self.is_first, self.is_again = False, not self.parts
        if self.is_again and self.horizon is not None:
            self.horizon = self.horizon.again


def _parts(plan: Slices, shares: Sequence[int] | None) -> Sequence[Part]:
    """All that is left when the shares are used up belongs to the last part, so it counts as left
    there.
    """
    starts, held = [0], 0
    for number, planned in enumerate(plan.planned):
        if held and held + planned > MOST_IN_A_SWEEP and (shares is None or shares[number]):
            starts.append(number)
            held = 0
        held += planned
    parts = []
    for start, end in zip(starts, [*starts[1:], len(plan.planned)], strict=True):
        part, share = plan.part(start, end), tuple((shares or plan.planned)[start:end])
        parts.append(Part(part, None if share == part.planned else share))
    return parts
