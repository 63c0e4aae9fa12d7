"""Tables on standard output: on a terminal they fit its width, elsewhere they are plain and whole.

Cells may hold texts of others: what a terminal would obey or hide is shown as an escape. Colours
are for a terminal only, and NO_COLOR turns them off (https://no-color.org).
"""

import sys
from collections.abc import Iterable, Mapping, Sequence

import rich.table
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from duesweep.core.errors import make_printable
from duesweep.report.text import Cell, Column, Row

_GAP = "  "
_CUT = "…"
# Longer names do not move the values of all others to the right.
_WIDEST_NAME = 50
# Longer than any line; rich has no width that means "as wide as it is".
_WHOLE_LINES = 1_000_000


def print_table(columns: Sequence[Column], rows: Iterable[Row]) -> None:
    """Print the table, its titles first, and flush: more may take its time."""
    console = _console()
    width = console.width if console.is_terminal else None
    for line in lay_out(columns, list(rows), width):
        console.print(line, soft_wrap=True)
    sys.stdout.flush()


def print_wrapped(rows: Sequence[Row]) -> None:
    """Print rows without titles, the last cell wrapped at the width of a terminal; elsewhere lines
    are whole, so that they can be copied.
    """
    table = rich.table.Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for number in range(len(rows[0])):
        table.add_column(no_wrap=number < len(rows[0]) - 1, overflow="fold")
    for row in rows:
        cells = [Cell(each) if isinstance(each, str) else each for each in row]
        # As Text: rich would read brackets in names as mark-up.
        table.add_row(*(Text(_printable_lines(cell.text), style=cell.style) for cell in cells))
    console = Console(width=None if sys.stdout.isatty() else _WHOLE_LINES)
    with console.capture() as lines:
        console.print(table)
    print("\n".join(line.rstrip() for line in lines.get().splitlines()))


def lay_out(columns: Sequence[Column], rows: Sequence[Row], width: int | None) -> list[Text]:
    """The table's lines, which fit into `width` (None: as long as they have to be). Where the
    columns do not fit side by side, a row has several lines. What may not be cut may be longer.
    """
    title = [Cell(column.title, "bold") for column in columns]
    cells = [[_shown(cell) for cell in row] for row in (title, *rows)]
    widths = [max(cell_len(row[i].text) for row in cells) for i in range(len(columns))]
    parts = [range(len(columns))] if width is None else _fit(columns, widths, width)
    return [
        _line(columns, row, widths, part, indent=_GAP if number else "")
        for row in cells
        for number, part in enumerate(parts)
    ]


def fact_lines(values: Mapping[str, str], indent: str) -> list[str]:
    """A line for each name with its value, the values under each other."""
    names = {name: make_printable(name) for name in values}
    width = min(_WIDEST_NAME, max(map(cell_len, names.values()), default=0))
    return [
        f"{indent}{shown}{' ' * (width - cell_len(shown))}  {make_printable(values[name])}".rstrip()
        for name, shown in names.items()
    ]


def _console() -> Console:
    is_terminal = sys.stdout.isatty()
    console = Console(force_terminal=is_terminal, highlight=False)
    if console.no_color:
        return Console(force_terminal=is_terminal, highlight=False, color_system=None)
    return console


def _shown(cell: Cell | str) -> Cell:
    whole = Cell(cell) if isinstance(cell, str) else cell
    return Cell(make_printable(whole.text).replace("\t", r"\t"), whole.style)


def _printable_lines(text: str) -> str:
    return "\n".join(map(make_printable, text.split("\n")))


def _fit(columns: Sequence[Column], widths: list[int], width: int) -> list[range]:
    """Make columns narrower, and return which of them stand side by side: as few lines a row as
    may be. On each line the widest column becomes narrower first.
    """
    least = [
        own
        if column.least is None or column.is_number
        else min(own, max(column.least, cell_len(column.title)))
        for column, own in zip(columns, widths, strict=True)
    ]
    parts = _fold(least, width)
    for part in parts:
        room = width - _gaps(part)
        while sum(widths[part.start : part.stop]) > room:
            wider = [i for i in part if widths[i] > least[i]]
            if not wider:
                break
            widths[max(wider, key=widths.__getitem__)] -= 1
    return parts


def _fold(least: Sequence[int], width: int) -> list[range]:
    parts: list[range] = []
    start = 0
    for end in range(1, len(least) + 1):
        part = range(start, end)
        if len(part) > 1 and sum(least[start:end]) + _gaps(part) > width:
            parts.append(range(start, end - 1))
            start = end - 1
    return [*parts, range(start, len(least))]


def _gaps(part: range) -> int:
    """The room that is not for cells: gaps, and the indent of a line that goes on with a row."""
    return len(_GAP) * (len(part) - (part.start == 0))


def _line(
    columns: Sequence[Column],
    row: Sequence[Cell],
    widths: Sequence[int],
    part: range,
    *,
    indent: str,
) -> Text:
    line = Text(indent)
    for i in part:
        text, style = row[i]
        space = " " * (widths[i] - cell_len(text))
        line.append(_GAP if i > part.start else "")
        line.append(space if columns[i].is_number else "")
        line.append(_cut(text, widths[i]), style)
        line.append("" if columns[i].is_number else space)
    line.rstrip()
    return line


def _cut(text: str, width: int) -> str:
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + _CUT
