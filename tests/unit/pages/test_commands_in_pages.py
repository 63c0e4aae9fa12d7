"""Every `duesweep …` and `./spark-submit.sh …` in the pages is a command line of today.

What the commands of docs/operations.md print is tests/acceptance/test_operations_page.py's affair.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from duesweep.cli.app import app

_ROOT = Path(__file__).parents[3]
_PAGES = [
    *(_ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((_ROOT / "docs").glob("*.md")),
]
_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_SHELLS = {"", "console", "sh", "bash"}
_IN_BLOCK = re.compile(
    r"(?:^|&&|[*\d] ) *(?:\$ )?(?:(?:\./)?duesweep|\./spark-submit\.sh) ([^&\n]*)", re.MULTILINE
)
_IN_TEXT = re.compile(r"`(?:(?:\./)?duesweep|\./spark-submit\.sh) ([^`]+)`")
# What a page writes around a command line: comments, redirections, brackets, "and so on".
_AROUND = re.compile(r"  +#.*| 2?>>? .*|\|\|.*|[\[\]…]")


def _lines() -> Iterator[tuple[str, str]]:
    """Whole command lines, each with its page."""
    for page in _PAGES:
        for language, block in _BLOCK.findall(page.read_text(encoding="utf-8")):
            lines = _IN_BLOCK.findall(re.sub(r"\\\n *", "", block))
            for line in lines if language in _SHELLS else ():
                yield page.name, _AROUND.sub("", line).strip()


def _mentions() -> Iterator[tuple[str, str]]:
    """What sentences say of a command, which may lack arguments."""
    for page in _PAGES:
        text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
        for line in _IN_TEXT.findall(text):
            yield page.name, " ".join(_AROUND.sub("", line).split())


def _command(words: list[str]) -> tuple[Any, list[str]]:
    """The command, and what follows it."""
    command: Any = typer.main.get_command(app)
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        command, words = command.commands[words[0]], words[1:]
    return command, words


@pytest.mark.parametrize(("page", "line"), sorted(set(_lines())))
def test_command_line_can_be_parsed(page: str, line: str) -> None:
    command, arguments = _command(shlex.split(line))

    assert not hasattr(command, "commands"), f"{page} has a group of commands without one of them"
    command.make_context(line, arguments)


@pytest.mark.parametrize(("page", "line"), sorted(set(_mentions())))
def test_command_exists_with_its_options(page: str, line: str) -> None:
    *group, alternatives = line.replace(" | ", "|").split(" --")[0].split()
    if "|" not in alternatives:
        group, alternatives = [], line
    for last in alternatives.split("|"):
        if last == "<command> --help":
            continue
        command, rest = _command([*group, *last.split()])
        options = {option for each in command.params for option in each.opts}
        assert {word for word in rest if word.startswith("--")} <= options, page


def test_pages_have_commands_to_check() -> None:
    assert len({page for page, _ in _lines()}) > 5
    assert len(list(_lines())) > 35
    assert len(list(_mentions())) > 70
