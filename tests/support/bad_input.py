"""The corpus of bad input in `tests/fixtures/bad_input`."""

import json
from pathlib import Path
from typing import Any

import pytest

_FOLDER = Path(__file__).parents[1] / "fixtures" / "bad_input"


class BadInput(dict[str, Any]):
    """A line of the corpus: `text` is the whole, the rest as in its README."""

    @property
    def text(self) -> str:
        return "".join(
            part if isinstance(part, str) else part[0] * part[1] for part in self["parts"]
        )

    @property
    def data(self) -> bytes:
        """The text in its encoding."""
        return self.text.encode(self.get("encoding", "utf-8"))


def corpus(name: str) -> list[BadInput]:
    lines = (_FOLDER / f"{name}.jsonl").read_bytes().splitlines()
    return [BadInput(json.loads(line)) for line in lines]


def each_of(name: str) -> list[Any]:
    """The same as parameters of a test, with their names."""
    return [pytest.param(one, id=one["name"]) for one in corpus(name)]
