"""Tables on standard output: on a terminal they fit its width, elsewhere they are plain and whole.

Cells may hold texts of others: what a terminal would obey or hide is shown as an escape. Colours
are for a terminal only, and NO_COLOR turns them off (https://no-color.org).
"""

import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from duesweep.texts import make_printable

_GAP = "  "
_CUT = "…"


class Column(NamedTuple):
    """`is_number`: on the right. `least`: how narrow it may become, in characters; None: it keeps
    its width, as a key has to.
    """

    title: str
    is_number: bool = False
    least: int | None = 8


class Cell(NamedTuple):
    """A text with a style of rich's, such as `red`."""

    text: str
    style: str = ""


Row = Sequence[Cell | str]


def print_table(columns: Sequence[Column], rows: Iterable[Row]) -> None:
    """Print the table, its titles first, and flush: more may take its time."""
    console = _console()
    width = console.width if console.is_terminal else None
    for line in lay_out(columns, list(rows), width):
        console.print(line, soft_wrap=True)
    sys.stdout.flush()


def lay_out(columns: Sequence[Column], rows: Sequence[Row], width: int | None) -> list[Text]:
    """The table's lines. None is longer than `width`; None: they are as long as they have to be."""
    title = [Cell(column.title, "bold") for column in columns]
    cells = [[_shown(cell) for cell in row] for row in (title, *rows)]
    natural = [max(cell_len(row[i].text) for row in cells) for i in range(len(columns))]
    widths = natural if width is None else _fit(columns, natural, width)
    return [_line(columns, row, widths, width) for row in cells]


def _console() -> Console:
    is_terminal = sys.stdout.isatty()
    console = Console(force_terminal=is_terminal, highlight=False)
    if console.no_color:
        return Console(force_terminal=is_terminal, highlight=False, color_system=None)
    return console


def _shown(cell: Cell | str) -> Cell:
    whole = Cell(cell) if isinstance(cell, str) else cell
    return Cell(make_printable(whole.text).replace("\t", r"\t"), whole.style)


def _fit(columns: Sequence[Column], natural: Sequence[int], width: int) -> list[int]:
    """The widest columns become narrower, until the table fits or none may become narrower."""
    least = [
        own if column.least is None else min(own, max(column.least, cell_len(column.title)))
        for column, own in zip(columns, natural, strict=True)
    ]
    widths = list(natural)
    room = width - len(_GAP) * (len(columns) - 1)
    while sum(widths) > room:
        wider = [i for i, own in enumerate(widths) if own > least[i]]
        if not wider:
            break
        widths[max(wider, key=widths.__getitem__)] -= 1
    return widths


def _line(
    columns: Sequence[Column], row: Sequence[Cell], widths: Sequence[int], width: int | None
) -> Text:
    line = Text()
    for number, (column, cell, own) in enumerate(zip(columns, row, widths, strict=True)):
        text, style = cell
        space = " " * (own - cell_len(text))
        line.append(_GAP if number else "")
        line.append(space if column.is_number else "")
        line.append(_cut(text, own), style)
        line.append("" if column.is_number else space)
    line.rstrip()
    if width is not None and line.cell_len > width:
        line.truncate(width - 1)
        line.append(_CUT)
    return line


def _cut(text: str, width: int) -> str:
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + _CUT
