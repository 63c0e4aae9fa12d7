"""docs/commands.md lists all commands. With DUESWEEP_WRITE_PAGES=1 the list is written again."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from duesweep.cli.app import all_commands

_PAGE = Path(__file__).parents[3] / "docs" / "commands.md"
_LIST = re.compile(r"(?<=<!-- commands: begin -->\n).*(?=<!-- commands: end -->)", re.DOTALL)
# Options that most commands have; the page names them above the list.
_SHARED = {"--config", "--endpoint", "--set", "--json", "--help"}


def test_page_lists_each_command_with_its_options() -> None:
    text = _PAGE.read_text(encoding="utf-8")
    rows = "\n".join(_rows(typer.main.get_command(all_commands())))
    table = f"\n| command | does | options |\n|---|---|---|\n{rows}\n\n"
    written = _LIST.sub(lambda _: table, text)
    if os.environ.get("DUESWEEP_WRITE_PAGES"):
        _PAGE.write_text(written, encoding="utf-8")

    assert text == written, "renew the page with DUESWEEP_WRITE_PAGES=1, and read it"


def test_page_names_the_shared_options() -> None:
    text = _PAGE.read_text(encoding="utf-8")

    assert [name for name in _SHARED - {"--help"} if f"`{name}`" not in text] == []


def _rows(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from _rows(inner, (*path, name))
        return
    context = command.make_context(name := " ".join(path), [], resilient_parsing=True)
    _, *arguments = command.collect_usage_pieces(context)
    usage = re.sub(r"\{(\w+)(?:\.\.\.)?\}", lambda word: word[1].upper(), " ".join(arguments))
    sentence = (command.short_help or command.help.split("\n\n")[0]).replace("\n", " ")
    does = sentence.split(". ")[0].removesuffix(".")
    options = [max(each.opts, key=len) for each in command.params if each.opts[0][0] == "-"]
    own = ", ".join(f"`{each}`" for each in options if each not in _SHARED)
    yield f"| `{f'{name} {usage}'.strip()}` | {does} | {own} |"
