"""Blocks, the output for people. Views (`report/views`) make them of the texts as they are, also
texts of others; `tables` prints them, and `page` draws them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


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
