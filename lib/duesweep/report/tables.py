"""Blocks on standard output: tables fit a terminal, elsewhere they are plain and whole.

Texts may be others': control characters of a terminal are shown as escapes. Colours are for a
terminal only, and NO_COLOR turns them off (https://no-color.org).
"""

import sys
from collections.abc import Iterable, Mapping, Sequence, Set

from duesweep.core.errors import make_printable
from duesweep.core.passing import printing
from duesweep.report.text import Block, Cell, Column, Facts, Line, Note, Row, Table, Wrapped

_GAP = "  "
_CUT = "…"
# Longer names do not move the values of all others to the right; nor do longer keys.
_WIDEST_NAME = 50
_WIDEST_KEY = 64
# Longer than any line; rich has no width that means "as wide as it is".
_WHOLE_LINES = 1_000_000


def print_blocks(blocks: Iterable[Block], *, as_json: bool = False) -> None:
    """Print them and flush: more may take its time. `as_json`: the result is printed as a document,
    so that only notes are left.
    """
    for block in blocks:
        if isinstance(block, Note):
            if block.with_json or not as_json:
                with printing():
                    sys.stdout.flush()
                    print(make_printable(f"duesweep: {block.text}"), file=sys.stderr)
        elif not as_json:
            with printing():
                _print_block(block)
    sys.stdout.flush()


def _print_block(block: Line | Table | Wrapped | Facts) -> None:
    if isinstance(block, Line):
        print(make_printable(block.text))
    elif isinstance(block, Table):
        print_table(block.columns, block.rows)
    elif isinstance(block, Wrapped):
        print_wrapped(block.rows)
    else:
        for line in fact_lines(block.values, block.indent):
            print(line)


def print_table(columns: Sequence[Column], rows: Iterable[Row]) -> None:
    """Print the table, its titles first, and flush: more may take its time."""
    if not sys.stdout.isatty():
        for line in lay_out(columns, list(rows), None):
            print("".join(cell.text for cell in line))
    else:
        # Takes a tenth of a second, which a sweep by cron does without.
        from rich.console import Console  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        console = Console(
            force_terminal=True,
            highlight=False,
            color_system=None if Console().no_color else "auto",
        )
        for line in lay_out(columns, list(rows), console.width):
            console.print(Text.assemble(*line), soft_wrap=True)
    sys.stdout.flush()


def print_wrapped(rows: Sequence[Row]) -> None:
    """Print rows without titles, the last cell wrapped at the width of a terminal; elsewhere lines
    are whole, so that they can be copied.
    """
    import rich.table  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = rich.table.Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for number in range(len(rows[0])):
        table.add_column(no_wrap=number < len(rows[0]) - 1, overflow="fold")
    for row in rows:
        cells = [Cell(each) if isinstance(each, str) else each for each in row]
        texts = ["\n".join(map(make_printable, cell.text.split("\n"))) for cell in cells]
        # As Text: rich would read brackets in names as mark-up.
        table.add_row(*(Text(text, cell.style) for text, cell in zip(texts, cells, strict=True)))
    console = Console(width=None if sys.stdout.isatty() else _WHOLE_LINES)
    with console.capture() as lines:
        console.print(table)
    print("\n".join(line.rstrip() for line in lines.get().splitlines()))


def lay_out(columns: Sequence[Column], rows: Sequence[Row], width: int | None) -> list[list[Cell]]:
    """The table's lines, which fit into `width` (None: as long as they have to be). Columns become
    narrower, and if that is not enough, columns are left out: first empty ones, then by their
    rank. A key is never cut: a line may be longer for it.
    """
    title = [Cell(column.title, "bold") for column in columns]
    cells = [[_shown(cell) for cell in row] for row in (title, *rows)]
    widths = [max(_width(row[i].text) for row in cells) for i in range(len(columns))]
    values = [{row[i].text for row in cells[1:]} for i in range(len(columns))]
    shown = list(range(len(columns))) if width is None else _fit(columns, widths, width, values)
    return [_line(columns, row, widths, shown) for row in cells]


def fact_lines(values: Mapping[str, str], indent: str) -> list[str]:
    """A line for each name with its value, the values under each other."""
    names = {name: make_printable(name) for name in values}
    width = min(_WIDEST_NAME, max(map(_width, names.values()), default=0))
    return [
        f"{indent}{shown}{' ' * (width - _width(shown))}  {make_printable(values[name])}".rstrip()
        for name, shown in names.items()
    ]


def _width(text: str) -> int:
    """The width of a text in a terminal."""
    from rich import cells  # noqa: PLC0415 - what prints no table does without rich

    return cells.cell_len(text)


def _shown(cell: Cell | str) -> Cell:
    whole = Cell(cell) if isinstance(cell, str) else cell
    return Cell(make_printable(whole.text).replace("\t", r"\t"), whole.style)


def _fit(
    columns: Sequence[Column], widths: list[int], width: int, values: Sequence[Set[str]]
) -> list[int]:
    """Leave columns out and make others narrower, the widest first; which ones are left."""
    for i, column in enumerate(columns):
        if _is_key(column):
            widths[i] = min(widths[i], _WIDEST_KEY)
    least = [
        own if _is_key(column) else min(own, max(column.least or 0, _width(column.title)))
        for column, own in zip(columns, widths, strict=True)
    ]
    shown = list(range(len(columns)))

    def leave_out(needed: Sequence[int], these: Sequence[int]) -> None:
        left = sorted((i for i in these if columns[i].rank), key=lambda i: columns[i].rank)
        while left and sum(needed[i] for i in shown) > _room(shown, width):
            shown.remove(left.pop())

    # No text is cut for the sake of a column without a value.
    leave_out(widths, [i for i in shown if values[i] <= {"", "0"}])
    leave_out(least, shown)
    while sum(widths[i] for i in shown) > _room(shown, width):
        wider = [i for i in shown if widths[i] > least[i]]
        if not wider:
            break
        widths[max(wider, key=widths.__getitem__)] -= 1
    return shown


def _is_key(column: Column) -> bool:
    return column.is_number or column.least is None


def _room(shown: Sequence[int], width: int) -> int:
    return width - len(_GAP) * (len(shown) - 1)


def _line(
    columns: Sequence[Column], row: Sequence[Cell], widths: Sequence[int], shown: Sequence[int]
) -> list[Cell]:
    line: list[Cell] = []
    for i in shown:
        text, style = row[i]
        if not _is_key(columns[i]):
            text = _cut(text, widths[i])
        gap = _GAP if line else ""
        space = " " * (widths[i] - _width(text))
        if columns[i].is_number:
            line += [Cell(gap + space), Cell(text, style)]
        else:
            line += [Cell(gap), Cell(text, style), Cell(space)]
    while line and not line[-1].text.strip():
        line.pop()
    return [*line[:-1], line[-1]._replace(text=line[-1].text.rstrip())] if line else []


def _cut(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    from rich.cells import set_cell_size  # noqa: PLC0415 - see `_width`

    return set_cell_size(text, width - 1).rstrip() + _CUT
