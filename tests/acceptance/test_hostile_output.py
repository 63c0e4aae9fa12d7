"""Texts of messages and operators on terminals and in the page: shown, never obeyed."""

import unicodedata

from duesweep.core.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID
from duesweep_testing.builders import delayed_row
from support.endpoint import Endpoint

_HARM = "<script>alert(1)</script>'\"{{7*7}}[red]\x1b[2J\x07\x9b\u202e\r\nx"
_WHY = ("--reason", _HARM)


def _obeyed(text: str) -> set[str]:
    """Characters that a terminal obeys or hides, but for ends of lines."""
    return {c for c in text.replace("\n", "") if unicodedata.category(c) in {"Cc", "Cf"}}


def test_texts_of_others_move_no_terminal_and_are_no_mark_up_of_the_page(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing")
    names = (MESSAGE_ID, ENCLOSED_MESSAGE_TYPES, _HARM)
    more: dict[str, str | None] = dict.fromkeys(names, _HARM)
    exhausted, failed, waiting = (
        delayed_row(_HARM, more=more, due=endpoint.due_in(seconds), body=_HARM.encode())
        for seconds in (-60, -50, 3_600)
    )
    endpoint.load([exhausted])
    swept = endpoint.run("sweep", retry__max_attempts=1)
    endpoint.load([failed, waiting])
    page = endpoint.folder / "page.html"

    for command, code in (
        *((("sweep",), 3), (("list",), 0), (("list", "--failing"), 0), (("plan",), 0)),
        *((("errors", "list"), 0), (("errors", "show", exhausted.key), 0)),
        *((("show", waiting.key), 0), (("pause", _HARM, *_WHY), 0), (("paused",), 0)),
        *((("list",), 0), (("report", "--out", str(page)), 0), (("audit",), 0)),
        (("cancel", waiting.key, *_WHY, "--yes"), 0),
        (("restore", waiting.key, *_WHY, "--yes"), 0),
        (("errors", "discard", exhausted.key, *_WHY, "--yes"), 0),
    ):
        ran = endpoint.run(*command)
        assert (ran.code, _obeyed(ran.told)) == (code, set()), (command, ran)

    assert (swept.code, _obeyed(swept.told)) == (3, set())
    html = page.read_text("utf-8")
    assert "&lt;script&gt;alert(1)" in html
    assert "<script>alert" not in html
    assert _obeyed(html) == set()
