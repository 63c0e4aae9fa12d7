"""What holds messages back, and pauses, in a line, as rows of a table and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from duesweep.core.account import HeldBack, held_by_pause
from duesweep.core.errors import make_printable, shorten
from duesweep.core.policy import Pause
from duesweep.report.quantities import count_text, time_text
from duesweep.report.text import Column, Row

PAUSE_COLUMNS = (
    Column("destination", least=12),
    Column("since (UTC)", least=None),
    Column("until (UTC)", least=None),
    Column("by", least=8),
    Column("reason", least=12),
)
_FORMAT = "%Y-%m-%d %H:%M:%S"


def held_sentence(held: HeldBack) -> str:
    """What is held back, and why, as in `paused: Billing*, 3 messages: the bank is down`."""
    parts = [
        None if held.what is None else shorten(held.what),
        None if held.messages is None else count_text(held.messages, "message"),
        None if held.until is None else f"until {time_text(held.until)}",
    ]
    return ": ".join(filter(None, [held.holder, ", ".join(filter(None, parts)), held.why]))


def held_document(held: HeldBack) -> dict[str, Any]:
    """The same for JSON; times are in ISO 8601."""
    until = None if held.until is None else held.until.isoformat()
    return asdict(held) | {"holder": held.holder.value, "until": until}


def print_held(held: Sequence[HeldBack]) -> None:
    """What is held back, a line each; nothing where nothing is."""
    if held:
        print("Held back:")
    for one in held:
        print(make_printable(f"  {held_sentence(one)}"))


def pause_sentence(pause: Pause) -> str:
    """What a new pause does."""
    until = (
        "until somebody resumes it" if pause.until is None else f"until {time_text(pause.until)}"
    )
    return f"{shorten(pause.pattern)} is paused {until}. Batches under way end within 5 s or so."


def pause_row(pause: Pause) -> Row:
    """A pause's cells in the order of `PAUSE_COLUMNS`."""
    until = "" if pause.until is None else f"{pause.until:{_FORMAT}}"
    return [pause.pattern, f"{pause.paused_at:{_FORMAT}}", until, pause.given_by, pause.reason]


def pause_document(pause: Pause) -> dict[str, Any]:
    """A pause for JSON; times are in ISO 8601."""
    return held_document(held_by_pause(pause)) | {
        "paused_at": pause.paused_at.isoformat(),
        "given_by": pause.given_by,
        "reason": pause.reason,
    }
