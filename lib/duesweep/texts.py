"""Texts that come from outside, as a sentence or a terminal can take them."""

import re

# A sentence of ours without the names in it is far shorter.
_LONGEST = 500
_TAIL = 100
# Characters that a terminal obeys, does not show, or shows in another order: control characters
# (but a tab), those that Unicode calls format characters, line separators, and halves of surrogate
# pairs.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def shorten(text: str, longest: int = _LONGEST) -> str:
    """`text`, with its middle left out if it has more than `longest` characters."""
    if len(text) <= longest:
        return text
    head = longest - _TAIL
    return f"{text[:head]} [{len(text) - longest:,} more characters] {text[-_TAIL:]}"


def make_printable(text: str) -> str:
    """`text` with an escape, such as `\\x1b`, for each character that a terminal obeys or hides.

    Names and texts of others could clear its screen, or pretend to be another text.
    """
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
