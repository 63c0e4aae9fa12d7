"""Texts of others, as a sentence or a terminal can take them."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.core.errors import QueueNotFoundError, format_stack, make_printable, shorten


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("\x9b31m", r"\x9b31m"),
        ("\x07\x08\r\n\x7f\0", r"\x07\x08\r\n\x7f\x00"),
        ("\u202egnilliB", r"\u202egnilliB"),
        ("Bill\u200bing\ufeff", r"Bill\u200bing\ufeff"),
        ("a\u2028b\ud800", r"a\u2028b\ud800"),
        ("\U000e0041", r"\U000e0041"),
        ("a\tb", "a\tb"),
        ("Größe 注文 \N{GRINNING FACE} [red]", "Größe 注文 \N{GRINNING FACE} [red]"),
    ],
)
def test_what_a_terminal_obeys_or_hides_is_printed_as_an_escape(text: str, printed: str) -> None:
    assert make_printable(text) == printed


@given(st.text(st.characters()))
def test_no_control_format_or_separator_character_is_left(text: str) -> None:
    found = {unicodedata.category(character) for character in make_printable(text)}

    assert not found & {"Cs", "Zl", "Zp"}
    assert "Cc" not in found or "\t" in text
    make_printable(text).encode()


def test_short_text_stays_and_a_long_one_keeps_its_ends() -> None:
    assert shorten("x" * 500) == "x" * 500
    assert shorten("a" * 300_000 + "z") == f"{'a' * 400} [299,501 more characters] {'a' * 99}z"


def test_error_that_quotes_a_whole_message_is_short_in_every_place() -> None:
    name = "n" * 300_000

    with pytest.raises(QueueNotFoundError) as caught:
        raise QueueNotFoundError(f"There is no queue {name}") from ValueError(name)

    assert len(str(caught.value)) < 600
    assert str(caught.value).startswith("There is no queue nnn")
    assert len(format_stack(caught.value)) < 21_000
    assert format_stack(caught.value).startswith("ValueError: nnn")
