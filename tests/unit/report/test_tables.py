"""Tables on a terminal and in a pipe, beside those that tests/golden records."""

import io
import sys
from collections.abc import Sequence

import pytest
from rich.cells import cell_len

from duesweep.report import exhausted, message, waiting
from duesweep.report.tables import Cell, Column, Row, lay_out, print_table

COLUMNS = (Column("destination"), Column("key", least=None), Column("attempts", is_number=True))
KEY = "0b1f4a9e-6d3c-4f52-9b1c-1f0a7c3d5e6f"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _lines(rows: list[Row], width: int | None) -> list[str]:
    return [line.plain for line in lay_out(COLUMNS, rows, width)]


@pytest.fixture(autouse=True)
def _terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")


def test_table_in_a_pipe_is_whole_however_long_its_cells_are() -> None:
    long = "x" * 500

    assert _lines([[long, KEY, "0"]], None)[1] == f"{long}  {KEY}         0"


def test_table_on_a_terminal_fits_and_the_key_stays_whole() -> None:
    lines = _lines([["Billing." + "x" * 500, KEY, "0"]], 80)

    assert [cell_len(line) for line in lines] == [80, 80]
    assert f"…  {KEY}" in lines[1]


@pytest.mark.parametrize("width", [10, 30, 38, 54, 55, 56, 200])
def test_key_is_whole_on_any_terminal_and_no_line_is_longer_than_needed_for_it(width: int) -> None:
    lines = _lines([["Billing" * 30, KEY, "123,456,789,012"]], width)

    assert sum(KEY in line for line in lines) == 1
    assert any("123,456,789,012" in line for line in lines)
    assert all(len(line) <= max(width, len(KEY) + 2) for line in lines)


@pytest.mark.parametrize(
    ("columns", "titles"),
    [
        (waiting.COLUMNS, ["key"]),
        (waiting.FAILING_COLUMNS, ["key"]),
        (exhausted.GROUP_COLUMNS, ["group", "example"]),
        (exhausted.ROW_COLUMNS, ["message id"]),
        (message.EVENT_COLUMNS, ["sweep or command"]),
    ],
)
def test_what_other_commands_need_is_whole_at_80_columns(
    columns: Sequence[Column], titles: Sequence[str]
) -> None:
    row = [f"{number}{'x' * 35}" for number in range(len(columns))]

    printed = "\n".join(line.plain for line in lay_out(columns, [row], 80))

    for title in titles:
        assert row[[column.title for column in columns].index(title)] in printed


def test_wide_and_combining_characters_take_the_room_that_they_take_on_a_terminal() -> None:
    rows: list[Row] = [["請求書キュー", "1", "0"], ["Bille\u0301", "2", "0"], ["請" * 40, "3", "0"]]

    first, second, third = _lines(rows, 40)[1:]

    assert first.index("1") == 27 - 6, "six characters of two columns each"
    assert second.index("2") == 27 + 1, "a character of no column"
    assert cell_len(third) <= 40
    assert "…" in third


def test_what_a_terminal_would_obey_or_hide_is_shown_as_an_escape() -> None:
    _, line = _lines([["\x1b[2J\x07a\nb\tc\u202ed\x9b", "[red]1[/red]", "0"]], None)

    assert line.startswith(r"\x1b[2J\x07a\nb\tc\u202ed\x9b  [red]1[/red]")


@pytest.mark.parametrize(
    ("out", "variables", "is_coloured"),
    [
        (Terminal, {}, True),
        (io.StringIO, {}, False),
        (Terminal, {"NO_COLOR": "1"}, False),
        (Terminal, {"NO_COLOR": ""}, True),
        (Terminal, {"TERM": "dumb"}, False),
    ],
)
def test_colours_are_on_a_terminal_that_can_show_them_and_may(
    monkeypatch: pytest.MonkeyPatch,
    out: type[io.StringIO],
    variables: dict[str, str],
    *,
    is_coloured: bool,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    printed = out()
    monkeypatch.setattr(sys, "stdout", printed)

    print_table(COLUMNS, [[Cell("Billing", "red"), "1", "0"]])

    assert ("\x1b[31mBilling" in printed.getvalue()) == is_coloured
    assert ("\x1b" in printed.getvalue()) == is_coloured
