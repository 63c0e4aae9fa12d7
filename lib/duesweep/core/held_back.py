"""The reasons why messages that are due are held back in the store."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from duesweep.core.account import BreakerReport
from duesweep.core.policy import Pause


class Holder(StrEnum):
    """Why messages that are due stay in the store.

    - `paused`: an operator paused their destination.
    - `limited`: their destination has got as many a second as its limit allows.
    - `breaker`: their destination, or a service, is unavailable.
    - `back-off`: they failed, and sweeps try them again later.
    - `kept`: they are out of attempts, and the sweep gave up as many as it may.
    - `locked`: a transaction of another process holds their rows.
    """

    PAUSED = "paused"
    LIMITED = "limited"
    BREAKER = "breaker"
    BACK_OFF = "back-off"
    KEPT = "kept"
    LOCKED = "locked"


@dataclass(frozen=True, slots=True)
class HeldBack:
    """`messages` are held back by `holder`; None: all due ones, which were not counted. `what`
    is the destination, or the pattern of destinations; None: it is about all. `until` None:
    unknown.
    """

    holder: Holder
    what: str | None
    why: str
    messages: int | None = None
    until: datetime | None = None


def held_by_pause(pause: Pause, messages: int | None = None) -> HeldBack:
    """The messages that a pause holds back."""
    why = f"{pause.reason} ({pause.given_by})"
    return HeldBack(Holder.PAUSED, pause.pattern, why, messages, pause.until)


def held_by_back_off(messages: int, until: datetime | None = None) -> HeldBack:
    """Messages that failed; the first of them is tried again at `until`."""
    why = "they failed, and sweeps try them again later; see `duesweep list --failing`"
    return HeldBack(Holder.BACK_OFF, None, why, messages, until)


def held_by_lock(messages: int, holder: str | None, since: datetime | None) -> HeldBack:
    """Messages whose rows are locked."""
    who = holder or "another session"
    began = "" if since is None else f", whose transaction began at {since:%Y-%m-%d %H:%M:%S} UTC"
    return HeldBack(Holder.LOCKED, None, f"{who}{began}", messages)


def held_in_sweep(
    pauses: Iterable[Pause], breakers: Iterable[BreakerReport], kept: int
) -> list[HeldBack]:
    """What held messages back in a sweep. `kept` are out of attempts."""
    held = [held_by_pause(pause) for pause in pauses]
    held += [
        HeldBack(Holder.BREAKER, one.name, one.reason, one.left)
        for one in breakers
        if one.left and not one.is_closed
    ]
    if kept:
        why = "the sweep gave up retry.max_exhausted_per_sweep messages"
        held.append(HeldBack(Holder.KEPT, None, why, kept))
    return held
