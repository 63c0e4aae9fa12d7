"""Blocks, the output for people, and their text on a terminal or in a pipe.

Views (`report/views`) make blocks of the texts as they are, also texts of others. Only here they
are escaped: control characters of a terminal are shown as escapes.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from duesweep.core.errors import make_printable
from duesweep.core.passing import printing


class Column(NamedTuple):
    """`is_number`: on the right, not cut. `least`: how narrow it may become, in characters;
    None: it keeps its width, as a key or a time has to. On a terminal that is too narrow for the
    table, empty columns are left out first, and then the highest `rank`; 0: it stays.
    """

    title: str
    is_number: bool = False
    least: int | None = 8
    rank: int = 0


class Cell(NamedTuple):
    """A text with a style of rich's, such as `red`."""

    text: str
    style: str = ""


Row = Sequence[Cell | str]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the result."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """A remark, which goes to stderr. `with_json`: also with a JSON document."""

    text: str
    with_json: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the result, which fits a terminal, and is whole in a pipe."""

    columns: Sequence[Column]
    rows: Sequence[Row]

    def only(self, *titles: str) -> "Table":
        """The table with the columns of these titles."""
        kept = [i for i, column in enumerate(self.columns) if column.title in titles]
        rows = [[row[i] for i in kept] for row in self.rows]
        return Table([self.columns[i] for i in kept], rows)

    def beside(self, column: Column, cells: Iterable[Cell | str]) -> "Table":
        """The table with a column more, on the right."""
        rows = [[*row, cell] for row, cell in zip(self.rows, cells, strict=True)]
        return Table([*self.columns, column], rows)


@dataclass(frozen=True, slots=True)
class Wrapped:
    """Rows without titles, of which the last cell may have several lines and is wrapped to fit a
    terminal; in a pipe it is whole.
    """

    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with their values under each other."""

    values: Mapping[str, str]
    indent: str = "  "


Block = Line | Note | Table | Wrapped | Facts


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
        return
    from duesweep.report import tables  # noqa: PLC0415 - loads rich

    if isinstance(block, Table):
        tables.print_table(block.columns, block.rows)
    elif isinstance(block, Wrapped):
        tables.print_wrapped(block.rows)
    else:
        for line in tables.fact_lines(block.values, block.indent):
            print(line)
