"""What is shown of a preview."""

from collections import Counter

import pytest

from duesweep.preview import PreviewEntry
from duesweep.report.preview import print_preview


@pytest.mark.parametrize("name", ["[/red][bold]a[/]", "a]b[", "[dbo]"])
def test_brackets_in_names_are_no_mark_up(capsys: pytest.CaptureFixture[str], name: str) -> None:
    print_preview(Counter({PreviewEntry(name): 1, PreviewEntry(None, problem=name): 1}), name)

    assert capsys.readouterr().out.count(name) == 3


def test_no_text_of_others_reaches_the_terminal_raw(capsys: pytest.CaptureFixture[str]) -> None:
    print_preview(Counter({PreviewEntry("a\x1b[2J", problem="b\u202e"): 1}), "Sales")

    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "\u202e" not in printed
    assert r"a\x1b[2J" in printed
