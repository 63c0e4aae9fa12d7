"""Blocks as a person reads them: stdout or stderr, and no text of others raw."""

import pytest

from duesweep.report.text import Block, Column, Facts, Line, Note, Table, print_blocks

_HARM = "a\x1b[2J\u202eb"
_SHOWN = r"a\x1b[2J\u202eb"
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
