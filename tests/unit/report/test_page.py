"""The report's page and its text: whether all is well, blocks as HTML, a fleet."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from duesweep.core.finding import Check, Severity, fault, warning
from duesweep.core.held_back import HeldBack, Holder
from duesweep.core.policy import Pause
from duesweep.operations.status import Status
from duesweep.report.page import render
from duesweep.report.tables import print_blocks
from duesweep.report.text import Cell
from duesweep.report.views.status import headline, verdict, worst_first
from support.statuses import AGO, NOW, SWEEP, due, history, status, waiting

_HARM = "a<b>\x1b[2J&`x`"
_SHOWN = "a&lt;b&gt;\\x1b[2J&amp;`x`"


def _page(*found: Status, **options: Any) -> str:
    return render(found, NOW, **options)


@pytest.mark.parametrize(
    ("changes", "objective", "severity"),
    [
        ({}, None, None),
        ({"oldest_eligible": NOW - timedelta(minutes=9)}, None, None),
        ({"oldest_eligible": AGO}, None, "warning"),
        ({"oldest_eligible": NOW - timedelta(seconds=61)}, 60.0, "fault"),
        ({"oldest_eligible": NOW - timedelta(seconds=59)}, 60.0, None),
        ({"oldest_due": AGO}, 60.0, None),
        ({"destinations": [due(paused=3)]}, None, "warning"),
        ({"destinations": [due(eligible=3, problem="no queue")]}, None, "fault"),
        ({"destinations": [due(eligible=3)]}, None, None),
        ({"unsettled": 2, "unsettled_since": AGO}, None, "warning"),
        ({"unsettled": 2, "unsettled_since": NOW - timedelta(minutes=9)}, None, None),
    ],
)
def test_what_waits_is_well_or_not(
    changes: dict[str, Any], objective: float | None, severity: str | None
) -> None:
    found = status(waiting=waiting(**changes), objective_seconds=objective)

    assert [each.severity for each in found.concerns] == ([severity] if severity else [])


_MISSING = {"Partner": 288, "Crm": 210, "Mail": 93, "Fax": 17}


@pytest.mark.parametrize(
    ("most", "text"),
    [
        (1, "288 due messages for Partner would fail: no queue Partner"),
        (
            2,
            "498 due messages for 2 destinations (Partner: 288, Crm: 210) would fail; Partner: no "
            "queue Partner",
        ),
        (
            4,
            "608 due messages for 4 destinations (Partner: 288, Crm: 210, Mail: 93, and 1 more) "
            "would fail; Partner: no queue Partner",
        ),
    ],
    ids=["one", "two", "four"],
)
def test_fault_of_several_queues_blames_each_of_them(most: int, text: str) -> None:
    names = list(_MISSING)[:most]
    # The one with the most due messages, of which a sweep takes fewest, is not the worst.
    destinations = [due("Idle", problem="no queue Idle", back_off=999)]
    destinations += [due(n, eligible=_MISSING[n], problem=f"no queue {n}") for n in reversed(names)]
    paused = [due(name, paused=2) for name in names]

    found = status(waiting=waiting(destinations=[*destinations, *paused]))

    told = [each.text for each in found.concerns]
    assert told[0] == text
    assert told[1].startswith(
        f"paused: {2 * most} due messages for {'Partner' if most == 1 else most}"
    )


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({"late": 2}, "warning"),
        (
            {"sweeps": [SWEEP._replace(outcome="incomplete", reason="Billing is locked")]},
            "warning",
        ),
        ({"sweeps": [SWEEP._replace(outcome="failures")]}, None),
        ({"sweeps": []}, None),
    ],
)
def test_what_was_swept_is_well_or_not(changes: dict[str, Any], severity: str | None) -> None:
    found = status(history=history(**changes), objective_seconds=60.0)

    assert [each.severity for each in found.concerns] == ([severity] if severity else [])


def test_headline_counts_what_is_not_well_and_names_how_many_endpoints() -> None:
    well = status()
    bad = status("bad", problems=["The store could not be read"])
    warned = status("warned", findings=[warning(Check.CLOCK_SKEW, "a", "b", "c")] * 2)

    assert headline([well, well]) == Cell("All is well.", "green")
    assert headline([warned]) == Cell("Needs attention: 1 warning.", "yellow")
    assert headline([well, warned, bad]) == Cell(
        "Needs attention: 1 fault, 1 warning at 2 of 3 endpoints.", "red"
    )
    assert [one.source for one in worst_first([well, warned, bad])] == ["bad", "warned", "nsb"]


def test_fleet_is_a_table_on_the_terminal_and_a_page_each(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = [status("a/b c"), status("sick", problems=["no server answers"])]

    html = _page(*found)
    print_blocks(verdict(found))

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["sick", "fault"], ["a/b", "c"]]
    assert re.findall(r'<a href="(.+?)"', html) == ["#sick", "#a/b%20c", "#", "#"]
    assert re.findall(r'class="one-of-many" id="(.+?)"', html) == ["sick", "a/b c"]


def test_reasons_are_those_of_the_plan_and_of_the_last_sweep() -> None:
    held = [
        HeldBack(Holder.PAUSED, "Bill*", "stocktaking (ops)", 2, NOW),
        HeldBack(Holder.LIMITED, "Billing", "5 messages a second at most", 1),
    ]
    destinations = [due(eligible=4, paused=2, limited=1, back_off=3), due("Other", eligible=1)]
    cut = SWEEP._replace(outcome="incomplete", left=4, reason="Billing is locked")

    html = _page(
        status(
            waiting=waiting(due=9, looked_at=7, destinations=destinations, held_back=held),
            history=history(sweeps=[cut]),
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
    pause = Pause(_HARM, NOW, None, _HARM, _HARM)
    failing = history(sweeps=[SWEEP._replace(outcome="incomplete", reason=_HARM)])
    html = _page(
        status(
            _HARM,
            waiting=waiting(pauses=[pause], destinations=[due(_HARM, problem=_HARM)]),
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
    page = _page(status(waiting=waiting(due=1, destinations=[due(name, eligible=1)])))

    assert len(page) < 50_000
    assert "more characters]" in page


def test_severities_are_those_of_the_doctor() -> None:
    found = status(
        problems=["no server answers"], findings=[warning(Check.CLOCK_SKEW, "a", "b", "c")]
    )

    assert [each.severity for each in found.concerns] == [Severity.FAULT, Severity.WARNING]
    assert replace(found, concerns=()).judged() == found
