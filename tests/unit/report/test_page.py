"""The report's page and its text: whether all is well, blocks as HTML, a fleet."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duesweep.core.account import HeldBack, Holder
from duesweep.core.finding import Check, Severity, fault, warning
from duesweep.core.policy import Pause
from duesweep.operations.look import LATENESS, DestinationOutlook
from duesweep.operations.status import History, Status, Step, SweepLine, Waiting
from duesweep.report.page import render
from duesweep.report.text import Cell, Column, Table, print_blocks
from duesweep.report.views.status import headline, verdict, worst_first

_NOW = datetime(2026, 11, 23, 12, 30, tzinfo=UTC)
_AGO = _NOW - timedelta(hours=3)
_HARM = "a<b>\x1b[2J&`x`"
_SHOWN = "a&lt;b&gt;\\x1b[2J&amp;`x`"
_OPTIONS = ("--config", "/a b.toml", "--endpoint", "Sales")
_SWEEP = SweepLine(_AGO, 1.5, "done", 9, 9, 0, 0, 0, 700, None)
_PLOT = [Step("08:00", 1)]


def _due(destination: str = "Billing", **changes: Any) -> DestinationOutlook:
    one = DestinationOutlook(destination, 0, dict.fromkeys(LATENESS, 0) | {"up_to_1_d": 3})
    return one._replace(**changes)


def _waiting(**changes: Any) -> Waiting:
    values: dict[str, Any] = dict.fromkeys(("due", "hour", "day", "week", "later", "looked_at"), 0)
    values |= dict.fromkeys(("oldest_due", "oldest_eligible", "unsettled_since"))
    values |= {"pauses": (), "destinations": (), "held_back": (), "unsettled": 0}
    return Waiting(now=_NOW, hours=_PLOT, **values | changes)


def _history(**changes: Any) -> History:
    values: dict[str, Any] = dict.fromkeys(("dispatched", "failed", "exhausted", "late"), 0)
    values |= {"sweeps": [_SWEEP], "count": 1, "lateness_of": 9, "failing": (), "errors": ()}
    plots = dict.fromkeys(("rate", "backlog", "lateness"), _PLOT)
    return History(since=_AGO, **plots, **values | changes)


def _status(source: str = "nsb", **changes: Any) -> Status:
    values: dict[str, Any] = {"waiting": _waiting(), "history": _history(), "options": _OPTIONS}
    return Status(source, **values | changes).judged()


def _page(*found: Status, **options: Any) -> str:
    return render(found, _NOW, **options)


@pytest.mark.parametrize(
    ("changes", "objective", "severity"),
    [
        ({}, None, None),
        ({"oldest_eligible": _NOW - timedelta(minutes=9)}, None, None),
        ({"oldest_eligible": _AGO}, None, "warning"),
        ({"oldest_eligible": _NOW - timedelta(seconds=61)}, 60.0, "fault"),
        ({"oldest_eligible": _NOW - timedelta(seconds=59)}, 60.0, None),
        ({"oldest_due": _AGO}, 60.0, None),
        ({"destinations": [_due(paused=3)]}, None, "warning"),
        ({"destinations": [_due(eligible=3, problem="no queue")]}, None, "fault"),
        ({"destinations": [_due(eligible=3)]}, None, None),
        ({"unsettled": 2, "unsettled_since": _AGO}, None, "warning"),
        ({"unsettled": 2, "unsettled_since": _NOW - timedelta(minutes=9)}, None, None),
    ],
)
def test_what_waits_is_well_or_not(
    changes: dict[str, Any], objective: float | None, severity: str | None
) -> None:
    found = _status(waiting=_waiting(**changes), objective_seconds=objective)

    assert [each.severity for each in found.concerns] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({"late": 2}, "warning"),
        (
            {"sweeps": [_SWEEP._replace(outcome="incomplete", reason="Billing is locked")]},
            "warning",
        ),
        ({"sweeps": [_SWEEP._replace(outcome="failures")]}, None),
        ({"sweeps": []}, None),
    ],
)
def test_what_was_swept_is_well_or_not(changes: dict[str, Any], severity: str | None) -> None:
    found = _status(history=_history(**changes), objective_seconds=60.0)

    assert [each.severity for each in found.concerns] == ([severity] if severity else [])


def test_headline_counts_what_is_not_well_and_names_how_many_endpoints() -> None:
    well = _status()
    bad = _status("bad", problems=["The store could not be read"])
    warned = _status("warned", findings=[warning(Check.POOLER, "a", "b", "c")] * 2)

    assert headline([well, well]) == Cell("All is well.", "green")
    assert headline([warned]) == Cell("Needs attention: 1 warning.", "yellow")
    assert headline([well, warned, bad]) == Cell(
        "Needs attention: 1 fault, 1 warning at 2 of 3 endpoints.", "red"
    )
    assert [one.source for one in worst_first([well, warned, bad])] == ["bad", "warned", "nsb"]


def test_fleet_is_a_table_on_the_terminal_and_a_page_each(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = [_status("a/b c"), _status("sick", problems=["no server answers"])]

    html = _page(*found)
    print_blocks(verdict(found))

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["sick", "fault"], ["a/b", "c"]]
    assert re.findall(r'<a href="(.+?)"', html) == ["#sick", "#a/b%20c", "#", "#"]
    assert re.findall(r'class="one-of-many" id="(.+?)"', html) == ["sick", "a/b c"]


def test_reasons_are_those_of_the_plan_and_of_the_last_sweep() -> None:
    held = [
        HeldBack(Holder.PAUSED, "Bill*", "stocktaking (ops)", 2, _NOW),
        HeldBack(Holder.LIMITED, "Billing", "5 messages a second at most", 1),
    ]
    due = [_due(eligible=4, paused=2, limited=1, back_off=3), _due("Other", eligible=1)]
    cut = _SWEEP._replace(outcome="incomplete", left=4, reason="Billing is locked")

    html = _page(
        _status(
            waiting=_waiting(due=9, looked_at=7, destinations=due, held_back=held),
            history=_history(sweeps=[cut]),
        )
    )

    for text in (
        "4 for the next sweep; the last one left some: Billing is locked<br>",
        "1 of them limited: Billing, 5 messages a second at most<br>",
        "2 paused: Bill*, stocktaking (ops), until 2026-11-23 12:30:00 UTC<br>",
        "3 in back-off: they failed",
        ">1 for the next sweep</td>",
        "The table shows the 7 that have been due for the longest.",
    ):
        assert text in html, text


def test_texts_of_others_are_escaped_in_every_block_and_commands_name_the_endpoint() -> None:
    pause = Pause(_HARM, _NOW, None, _HARM, _HARM)
    failing = _history(sweeps=[_SWEEP._replace(outcome="incomplete", reason=_HARM)])
    html = _page(
        _status(
            _HARM,
            waiting=_waiting(pauses=[pause], destinations=[_due(_HARM, problem=_HARM)]),
            history=failing,
            findings=[fault(Check.SETUP, _HARM, _HARM, "Run the command `setup` once")],
            problems=[_HARM, "Run `duesweep sweep`"],
        )
    )

    assert "<b>\x1b" not in html
    assert "\x1b" not in html
    assert html.count(_SHOWN) >= 9
    assert "→ Run `duesweep setup --config &#39;/a b.toml&#39; --endpoint Sales` once" in html
    assert "Run `duesweep sweep --config &#39;/a b.toml&#39; --endpoint Sales`" in html
    (command,) = re.findall(r"<code>(.*?)</code>", html)
    assert command.startswith("duesweep resume ")
    assert command.endswith("--config &#39;/a b.toml&#39; --endpoint Sales")


def test_name_of_1_mb_makes_no_large_page() -> None:
    name = "n" * 1_000_000
    page = _page(_status(waiting=_waiting(due=1, destinations=[_due(name, eligible=1)])))

    assert len(page) < 50_000
    assert "more characters]" in page


def test_only_a_served_page_asks_for_itself_again() -> None:
    assert 'http-equiv="refresh"' not in _page(_status())
    assert '<meta http-equiv="refresh" content="30">' in _page(_status(), refresh_seconds=30)


def test_table_of_some_columns_and_with_another_one() -> None:
    table = Table([Column("a"), Column("b"), Column("c")], [["1", "2", "3"]])

    shown = table.only("a", "c").beside(Column("d"), ["4"])

    assert [column.title for column in shown.columns] == ["a", "c", "d"]
    assert shown.rows == [["1", "3", "4"]]


def test_severities_are_those_of_the_doctor() -> None:
    found = _status(problems=["no server answers"], findings=[warning(Check.POOLER, "a", "b", "c")])

    assert [each.severity for each in found.concerns] == [Severity.FAULT, Severity.WARNING]
    assert replace(found, concerns=()).judged() == found
