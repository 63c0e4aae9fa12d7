"""Blocks as a person reads them: stdout or stderr, and no text of others raw."""

import pytest

from duesweep.core.errors import ExitCode
from duesweep.core.quantities import count_text
from duesweep.operations.audit import AuditReport
from duesweep.report.tables import print_blocks
from duesweep.report.text import Block, Column, Facts, Line, Note, Table
from duesweep.report.views.upkeep import audited

# Also what Rich would take for mark-up.
_HARM = "a\x1b[2J\x9b2J\r\x07\u202e\u200b[red]b[/red]"
_SHOWN = r"a\x1b[2J\x9b2J\r\x07\u202e\u200b[red]b[/red]"
_BLOCKS: list[Block] = [
    Line(_HARM),
    Table([Column(_HARM)], [[_HARM]]),
    Facts({_HARM: _HARM, "請求": "b"}),
    Note(_HARM),
    Note("always", with_json=True),
]


def test_blocks_are_escaped_and_notes_are_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    print_blocks(_BLOCKS)

    out, err = capsys.readouterr()
    facts = [f"  {_SHOWN}  {_SHOWN}", f"  請求{' ' * (len(_SHOWN) - 4)}  b"]
    assert out.splitlines() == [_SHOWN, _SHOWN, _SHOWN, *facts]
    assert err.splitlines() == [f"duesweep: {_SHOWN}", "duesweep: always"]


def test_beside_a_document_are_only_notes_that_it_does_not_have(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_blocks(_BLOCKS, as_json=True)

    assert capsys.readouterr() == ("", "duesweep: always\n")


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "sweep or command", "1 sweep or command"),
        (3, "sweep or command", "3 sweeps or commands"),
        (1_200, "due message", "1,200 due messages"),
    ],
)
def test_number_of_things_is_plural_in_each_word(count: int, noun: str, text: str) -> None:
    assert count_text(count, noun) == text


@pytest.mark.parametrize(
    ("unsettled", "first"),
    [
        (0, ": no differences."),
        (
            2,
            ": 2 sweeps or commands not judged, since the ledger may lack their rows; the settled "
            "ones agree.",
        ),
    ],
)
def test_verdict_of_an_audit_is_of_judged_rows_only(unsettled: int, first: str) -> None:
    found = AuditReport(
        "nsb", tombstones=6, sweeps=3, stored=0, unsettled=unsettled, findings=(), suspects=(),
        exit_code=ExitCode.DONE,
    )  # fmt: skip

    lines = [each.text for each in audited(found) if isinstance(each, Line)]

    assert lines[0].endswith(first)
    assert len(lines) == 1
