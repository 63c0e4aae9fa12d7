"""Tables, previews, quantities and the progress bar on a terminal and in a pipe, in cases that
tests/golden does not record.
"""

import io
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from duesweep.core.quantities import duration_text, size_text, time_text
from duesweep.report.tables import lay_out, print_table
from duesweep.report.text import Cell, Column, Row
from duesweep.report.views import exhausted, messages, runs, status, upkeep

COLUMNS = (
    Column("destination", rank=2),
    Column("key", least=None),
    Column("attempts", is_number=True, rank=1),
)
KEY = "0b1f4a9e-6d3c-4f52-9b1c-1f0a7c3d5e6f"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _lines(rows: list[Row], width: int | None) -> list[str]:
    return _plain(lay_out(COLUMNS, rows, width))


def _plain(lines: Sequence[Sequence[Cell]]) -> list[str]:
    return ["".join(cell.text for cell in line) for line in lines]


@pytest.fixture(autouse=True)
def _terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")


def test_table_on_a_terminal_fits_and_the_key_stays_whole() -> None:
    lines = _lines([["Billing." + "x" * 500, KEY, "7"]], 80)

    assert [cell_len(line) for line in lines] == [80, 80]
    assert f"…  {KEY}" in lines[1]


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (10, "key"),
        (52, "key"),
        (53, "key attempts"),
        (65, "key attempts"),
        (66, "destination key attempts"),
        (200, "destination key attempts"),
    ],
)
def test_columns_are_left_out_by_their_rank_and_a_key_is_never_cut(width: int, shown: str) -> None:
    lines = _lines([["Billing" * 30, KEY, "123,456,789,012"], ["Mail", "1", "0"]], width)

    assert lines[0].split() == shown.split()
    assert len(lines) == 3, "no row has several lines"
    assert KEY in lines[1]
    assert all(len(line) <= max(width, len(KEY)) for line in lines)


@pytest.mark.parametrize(
    ("attempts", "shown"),
    [("0", "destination key"), ("", "destination key"), ("2", "key attempts")],
)
def test_columns_without_a_value_are_left_out_first(attempts: str, shown: str) -> None:
    lines = _lines([["Billing", KEY, attempts], ["Mail", "1", "0"]], 53)

    assert lines[0].split() == shown.split()


def test_long_key_makes_its_own_line_longer_and_no_other() -> None:
    _, long, short = _lines([["Mail", KEY * 1_000, "7"], ["Mail", "1", "7"]], 100)

    assert KEY * 1_000 in long
    assert len(short) <= 100


# As long as they often are.
_VALUES = {
    "destination": "Acme.Sales.Orders.Reminders.Mail",
    "type": "Acme.Sales.Messages.Commands.CancelOrder",
    **dict.fromkeys(("key", "message id", "example", "sweep or command"), KEY),
    **dict.fromkeys(("in",), "1 d 23 h ago"),
    **dict.fromkeys(("error", "first concern"), "QueueNotFoundError"),
    **dict.fromkeys(("reason", "text", "detail", "where to"), "There is no queue table " * 3),
    **{"group": "3cbea384", "state": "discarded", "what": "rescheduled", "by": "ops@warehouse"},
    **{"table": "tombstones", "endpoint": "acme/public.Sales.Orders.Delayed"},
}


@pytest.mark.parametrize(
    ("columns", "at_80", "at_60"),
    [
        (messages.COLUMNS, ["due (UTC)", "destination", "key"], ["due (UTC)", "key"]),
        (
            messages.FAILING_COLUMNS,
            ["next attempt (UTC)", "key", "reason"],
            ["next attempt (UTC)", "key"],
        ),
        (messages.EVENT_COLUMNS, ["at (UTC)", "what", "detail"], ["at (UTC)", "what", "detail"]),
        (
            messages.PAUSE_COLUMNS,
            ["destination", "until (UTC)", "reason"],
            ["destination", "until (UTC)"],
        ),
        (messages.DESTINATION_COLUMNS, ["destination", "messages"], ["destination", "messages"]),
        (
            exhausted.GROUP_COLUMNS,
            ["group", "open", "last (UTC)", "error", "destination", "text"],
            ["group", "open", "last (UTC)", "destination"],
        ),
        (
            exhausted.ERROR_COLUMNS,
            ["failed (UTC)", "state", "message id"],
            ["state", "message id"],
        ),
        (
            runs.PLAN_COLUMNS,
            ["destination", "eligible", "back-off", "paused", "limited", "late: more"],
            ["destination", "eligible", "back-off", "paused", "limited"],
        ),
        (
            runs.PREVIEW_COLUMNS,
            ["destination", "where to", "messages"],
            ["destination", "where to", "messages"],
        ),
        (upkeep.LEDGER_COLUMNS, ["table", "rows removed"], ["table", "rows removed"]),
        (
            status.FLEET_COLUMNS,
            ["endpoint", "state", "due now", "oldest due", "errors"],
            ["endpoint", "state", "due now"],
        ),
    ],
)
def test_table_of_each_command_fits_a_narrow_terminal_and_tells_the_most_important(
    columns: Sequence[Column], at_80: list[str], at_60: list[str]
) -> None:
    times = dict.fromkeys(
        (one.title for one in columns if "(UTC)" in one.title), "2026-11-23 09:40:11"
    )
    row = [times.get(one.title) or _VALUES.get(one.title, "1,234") for one in columns]

    for width, titles in ((80, at_80), (60, at_60)):
        heading, line = _plain(lay_out(columns, [row], width))
        assert cell_len(line) <= width
        assert cell_len(heading) <= width
        places = [heading.find(title) for title in titles]
        assert sorted(places) == places, heading
        assert -1 not in places, heading
        # Columns that may not be cut are whole.
        for column, value in zip(columns, row, strict=True):
            if column.title in titles and (column.least is None or column.is_number):
                assert value in line, heading


def test_wide_and_combining_characters_take_the_room_that_they_take_on_a_terminal() -> None:
    rows: list[Row] = [["請求書キュー", "1", "7"], ["Bille\u0301", "2", "0"], ["請" * 40, "3", "0"]]

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


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (999.6, "1.0 s"),
        (1_000, "1.0 s"),
        (9_940, "9.9 s"),
        (9_960, "10 s"),
        (16_200, "16 s"),
        (59_400, "59 s"),
        (59_600, "1 min 0 s"),
        (3_599_400, "59 min 59 s"),
        (3_599_600, "1 h 0 min"),
        (10_830_625, "3 h 1 min"),
        (10_800_625, "3 h 0 min"),
        (86_369_000, "23 h 59 min"),
        (86_399_000, "1 d 0 h"),
        (100 * 86_400_000, "100 d 0 h"),
        (2_000 * 86_400_000, "2,000 d 0 h"),
    ],
)
def test_duration_is_rounded_to_two_units(milliseconds: float, text: str) -> None:
    assert duration_text(milliseconds) == text


@given(st.floats(min_value=0, max_value=1e13))
def test_duration_is_never_far_from_what_it_shows(milliseconds: float) -> None:
    units = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
    words = duration_text(milliseconds).replace(",", "").split()

    shown = sum(float(n) * units[unit] for n, unit in zip(words[::2], words[1::2], strict=True))

    smallest = 100 if "." in words[0] else units[words[-1]]
    assert abs(shown - milliseconds) <= smallest / 2 * 1.001


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1_000, "1.0 kB"),
        (999_940, "999.9 kB"),
        (999_960, "1.0 MB"),
        (12_345_678, "12.3 MB"),
        (8 * 10**15, "8,000.0 TB"),
    ],
)
def test_size_is_rounded(count: int, text: str) -> None:
    assert size_text(count) == text


def test_time_is_in_utc_whatever_its_zone_is() -> None:
    moment = datetime(2026, 12, 1, 9, 0, 5, 987_000, tzinfo=timezone(timedelta(hours=1)))

    assert time_text(moment) == "2026-12-01 08:00:05 UTC"
    assert time_text(moment.astimezone(UTC)) == time_text(moment)
