"""What a handover would do, as a table."""

from collections import Counter

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from duesweep.core.errors import make_printable, shorten
from duesweep.preview import PreviewEntry


def print_preview(found: Counter[PreviewEntry], own_queue: str) -> None:
    """Where messages would go, as a table on stdout."""
    table = Table("destination", "where to", Column("messages", justify="right"))
    for entry, messages in sorted(found.items(), key=lambda item: _order(*item)):
        where = "at once" if entry.level is None else f"delay level {entry.level:02}"
        destination = entry.destination or own_queue
        if entry.problem:
            where = f"stays: {entry.problem}"
        # As Text: rich would read brackets in names as mark-up.
        cells = (Text(make_printable(shorten(text))) for text in (destination, where))
        table.add_row(*cells, f"{messages:,}")
    table.add_row("", "all", f"{found.total():,}")
    Console().print(table)


def _order(entry: PreviewEntry, _: int) -> tuple[bool, str, int, str]:
    level = -1 if entry.level is None else entry.level
    return (entry.problem is not None, entry.destination or "", level, entry.problem or "")
