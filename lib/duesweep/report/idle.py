"""What a sweep tells that has nothing to do: when the next message comes due."""

from datetime import timedelta
from typing import TYPE_CHECKING

from duesweep.report.quantities import duration_text, time_text

if TYPE_CHECKING:
    from duesweep.api.look import NextDue


def idle_sentence(source: str, next_due: "NextDue | None") -> str:
    """The sentence; without a time if there is no next message, or if the store cannot tell."""
    idle = f"{source}: nothing is to be sent now, and nothing is left to settle"
    if next_due is None:
        return f"{idle}."
    wait_ms = max(0.0, (next_due.instant - next_due.now) / timedelta(milliseconds=1))
    return (
        f"{idle}; the next message is due in {duration_text(wait_ms)}, "
        f"at {time_text(next_due.instant)}."
    )
