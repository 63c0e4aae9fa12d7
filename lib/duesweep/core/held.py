"""What holds messages back, in one vocabulary: `plan`, the summary and the doctor tell it alike."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from duesweep.core.account import BreakerReport
from duesweep.core.pauses import Pause


class Holder(StrEnum):
    """Why messages that are due stay in the store, although nobody else holds them.

    - `paused`: an operator paused their destination.
    - `limited`: their destination has got as many a second as its limit allows.
    - `breaker`: their destination, or a service, takes nothing.
    - `back-off`: they have failed, and are tried again later.
    - `kept`: they are out of attempts, and the sweep gave up as many as it may.
    """

    PAUSED = "paused"
    LIMITED = "limited"
    BREAKER = "breaker"
    BACK_OFF = "back-off"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class HeldBack:
    """`messages` are held back by `holder`; None: so many as are due, which was not counted. `what`
    is the destination, or the pattern of destinations; None: it is about all. `until` None: nobody
    knows.
    """

    holder: Holder
    what: str | None
    why: str
    messages: int | None = None
    until: datetime | None = None


def held_by_pause(pause: Pause, messages: int | None = None) -> HeldBack:
    """What a pause holds back."""
    why = f"{pause.reason} ({pause.given_by})"
    return HeldBack(Holder.PAUSED, pause.pattern, why, messages, pause.until)


def held_in_sweep(
    pauses: Iterable[Pause], breakers: Iterable[BreakerReport], kept: int
) -> list[HeldBack]:
    """What held messages back in a sweep. `kept` are out of attempts."""
    held = [held_by_pause(pause) for pause in pauses]
    held += [held_by_breaker(one) for one in breakers if one.left and not one.is_closed]
    if kept:
        why = "the sweep gave up retry.max_exhausted_per_sweep messages"
        held.append(HeldBack(Holder.KEPT, None, why, kept))
    return held


def held_by_breaker(report: BreakerReport) -> HeldBack:
    """What a breaker that is still open holds back."""
    return HeldBack(Holder.BREAKER, report.name, report.reason, report.left)
