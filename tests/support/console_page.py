"""A page whose commands are run, from top to bottom, and compared with the outputs that it shows.

A block ```console``` has commands after `$ `, each with its output. A comment `<!-- world: … -->`
names an event between two commands. A line `…` stands for any lines.
"""

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

_PART = re.compile(r"<!-- world: (.+?) -->|```console\n(.*?)```", re.DOTALL)
# A command, and the output that the page shows.
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_ANY = "…"
# Values that differ from run to run, and their placeholders.
_VOLATILE = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-(?!0{11})[0-9a-f]{12}"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?( UTC)?"), "TIME"),
    (re.compile(r"\d[\d,.]* (ms|s|min|h|d)\b( \d+ (ms|s|min|h)\b)?"), "DURATION"),
    (re.compile(r"\d[\d,.]* rows/s"), "RATE"),
    (re.compile(r"\b[0-9a-f]{8}\b"), "GROUP"),
)


class World(Protocol):
    """The endpoint of a page."""

    def change(self, event: str) -> None:
        """Let an event happen that the page names."""

    def run(self, arguments: list[str]) -> str:
        """The output of `duesweep` with these arguments."""


def compare(page: Path, world: World) -> None:
    """Run the page's commands in this world. DUESWEEP_WRITE_PAGES=1 writes their outputs into the
    page. An output that a line `…` cuts is written only if the world cuts it itself.
    """
    text = page.read_text(encoding="utf-8")
    different: list[tuple[str, str]] = []
    printed = _PART.sub(lambda part: _run(world, part, different), text)
    if os.environ.get("DUESWEEP_WRITE_PAGES"):
        page.write_text(printed, encoding="utf-8")
    assert not different, "\n".join(f"{shown}--- prints now:\n{now}" for shown, now in different)


def comparable(text: str) -> list[str]:
    """The lines without values that differ from run to run, and without a table's widths."""
    for pattern, word in _VOLATILE:
        text = pattern.sub(word, text)
    return [" ".join(line.split()) for line in text.splitlines()]


def is_shown(shown: Sequence[str], printed: Sequence[str]) -> bool:
    """Whether the lines are these, but for the lines that a `…` cuts."""
    lines = ["(?:.*\n)*" if line == _ANY else f"{re.escape(line)}\n" for line in shown]
    return re.fullmatch("".join(lines), "".join(f"{line}\n" for line in printed)) is not None


def _run(world: World, part: re.Match[str], different: list[tuple[str, str]]) -> str:
    if part[1] is not None:
        world.change(" ".join(part[1].split()))
        return part[0]
    commands = _COMMAND.findall(part[2])
    return "```console\n" + "".join(_run_one(world, *one, different) for one in commands) + "```"


def _run_one(world: World, command: str, shown: str, different: list[tuple[str, str]]) -> str:
    name, *arguments = shlex.split(command, comments=True)
    assert name == "duesweep", command
    lines = [line.rstrip() for line in world.run(arguments).rstrip("\n").splitlines()]
    printed = "".join(f"{line}\n" for line in lines)
    if is_shown(comparable(shown), comparable(printed)):
        return f"$ {command}\n{shown}"
    different.append((f"$ {command}\n{shown}", printed))
    keeps = _ANY in shown.splitlines() and _ANY not in lines
    return f"$ {command}\n{shown if keeps else printed}"
