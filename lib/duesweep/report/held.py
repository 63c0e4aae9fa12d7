"""What holds messages back, in a line and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from duesweep.core.account import HeldBack
from duesweep.core.errors import make_printable, shorten
from duesweep.report.quantities import count_text, time_text


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
