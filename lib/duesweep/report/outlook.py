"""What a sweep would do, as a table, as sentences and as JSON."""

from collections.abc import Iterator
from typing import Any

from duesweep.core.errors import shorten
from duesweep.operations.look import LATENESS, DestinationOutlook, Outlook
from duesweep.report.held import held_document, held_sentence
from duesweep.report.quantities import count_text, duration_text
from duesweep.report.text import Column, Row

_NUMBERS = ("eligible", "back-off", "paused", "limited")
COLUMNS = (
    Column("destination", least=12),
    *(Column(name, is_number=True) for name in _NUMBERS),
    *(Column(f"late: {name.replace('_', ' ')}", is_number=True) for name in LATENESS),
)


def destination_row(one: DestinationOutlook) -> Row:
    """A destination's cells in the order of `COLUMNS`."""
    counts = (one.eligible, one.back_off, one.paused, one.limited, *one.late)
    return [one.destination or "(cannot be read)", *(f"{count:,}" for count in counts)]


def sentences(outlook: Outlook) -> Iterator[str]:
    """What a sweep would do, and what is held back."""
    due = count_text(outlook.due, "message")
    yield f"{outlook.source}: {due} due, {outlook.eligible:,} of them for a sweep now."
    if outlook.is_cut:
        yield (
            f"The table, and what is held back, are about the {outlook.looked_at:,} that have been "
            "due for the longest."
        )
    slices = str(outlook.slices) if outlook.slices else "one for each core"
    took = (
        "no sweep on this engine to compare with yet"
        if outlook.seconds is None
        else f"about {duration_text(outlook.seconds * 1_000)}, by the last sweeps"
    )
    yield f"Engine: {outlook.engine}; slices: {slices}; time: {took}."
    failing = [one for one in outlook.destinations if one.problem is not None]
    if failing:
        yield "Would fail:"
    for one in failing:
        messages = count_text(sum(one.late), "message")
        yield f"  {shorten(one.destination or '')}, {messages}: {one.problem}"
    if outlook.held:
        yield "Held back:"
    for held in outlook.held:
        yield f"  {held_sentence(held)}"


def document(outlook: Outlook) -> dict[str, Any]:
    """The same for JSON: raw numbers, times in ISO 8601."""
    return {
        "source": outlook.source,
        "now": outlook.now.isoformat(),
        "due": outlook.due,
        "eligible": outlook.eligible,
        "looked_at": outlook.looked_at,
        "is_cut": outlook.is_cut,
        "engine": outlook.engine,
        "slices": outlook.slices,
        "seconds": None if outlook.seconds is None else round(outlook.seconds, 1),
        "destinations": [
            one._asdict() | {"late": dict(zip(LATENESS, one.late, strict=True))}
            for one in outlook.destinations
        ],
        "held_back": [held_document(held) for held in outlook.held],
    }
