"""The meaning of the text of a library's error: its cause, whether it may pass, what to do."""

import re
from collections.abc import Iterable
from typing import NamedTuple


class Cause(NamedTuple):
    """The deepest cause as a phrase, whether it may pass by itself (None: that is not known), and
    what to do about it.
    """

    text: str
    may_pass: bool | None
    advice: str | None = None

    @property
    def is_lasting(self) -> bool:
        """Whether it stays until a person corrects something."""
        return self.may_pass is False

    def __str__(self) -> str:
        return self.text if self.advice is None else f"{self.text}; {self.advice}"


class Meaning(NamedTuple):
    """The meaning of a text that is anywhere in the chain of causes. `says` is a template of the
    phrase; None: the deepest cause is the phrase.
    """

    pattern: str
    may_pass: bool
    advice: str | None = None
    says: str | None = None


def meant(text: str, phrase: str, meanings: Iterable[Meaning]) -> Cause:
    """The cause by the first meaning that fits the text. `phrase` is the deepest cause."""
    for meaning in meanings:
        if found := re.search(meaning.pattern, text):
            says = meaning.says and found.expand(meaning.says).strip()
            return Cause(says or phrase, meaning.may_pass, meaning.advice)
    return Cause(phrase, None)
