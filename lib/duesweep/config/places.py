"""Where a setting was written: on the command line, in the environment, or in a line of a file."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from duesweep.config.file import text_of
from duesweep.config.model import ENVIRONMENT
from duesweep.core.errors import ConfigError, shorten

# No setting has so many parts, the section of a fleet's endpoint included.
_DEEPEST = 8
# A setting's path; a number counts the sections of a list from 0.
Location = Sequence[str | int]
_PART = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[\w-]+)"""
_PATH = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*(?P<opening>\[\[?)\s*(?P<path>{_PATH})\s*\]")
_KEY = re.compile(rf"\s*(?P<path>{_PATH})\s*=")
_LONG_TEXTS = ('"' * 3, "'" * 3)


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a file that holds an endpoint's settings: all below `section`."""

    file: Path
    section: tuple[str | int, ...] = ()


class Places:
    """Where settings were written. Of `parts`, each overrides the next."""

    def __init__(self, parts: Sequence[Part], overrides: Sequence[str]) -> None:
        self.parts = parts
        self._options = {override.partition("=")[0].strip().lower() for override in overrides}
        self._variables = {name.upper(): name for name in os.environ}
        self._lines = [(part, lines_of(text_of(part.file))) for part in parts]

    def of(self, location: Location) -> str | None:
        """The place of a setting, else of the section around it; None if neither was written."""
        for depth in range(min(len(location), _DEEPEST), 0, -1):
            names = [str(each) for each in location[:depth]]
            if ".".join(names).lower() in self._options:
                return f"--set {'.'.join(names)}"
            variable = self._variables.get((ENVIRONMENT[0] + ENVIRONMENT[1].join(names)).upper())
            if variable is not None:
                return f"{variable} in the environment"
            for part, lines in self._lines:
                line = lines.get((*part.section, *location[:depth]))
                if line is not None:
                    return f"{shorten(str(part.file))}:{line}"
        return None


def lines_of(text: str) -> Mapping[tuple[str | int, ...], int]:
    """The lines of a TOML text, from 1, in which its sections and settings begin."""
    lines: dict[tuple[str | int, ...], int] = {}
    counts: dict[tuple[str | int, ...], int] = {}
    section: tuple[str | int, ...] = ()
    for number, line in _lines_outside_of_texts(text):
        if header := _HEADER.match(line):
            section = _counted(_parts(header["path"]), counts)
            if header["opening"] == "[[":
                lines.setdefault(section, number)
                counts[section] = counts.get(section, -1) + 1
                section = (*section, counts[section])
            path = section
        elif key := _KEY.match(line):
            path = (*section, *_parts(key["path"]))
        else:
            continue
        for length in range(1, min(len(path), _DEEPEST) + 1):
            lines.setdefault(path[:length], number)
    return lines


def _counted(
    names: Iterable[str], counts: Mapping[tuple[str | int, ...], int]
) -> tuple[str | int, ...]:
    """The path of a header, below the newest section of each list that it names, but the last."""
    path: tuple[str | int, ...] = ()
    for name in names:
        if path in counts:
            path = (*path, counts[path])
        path = (*path, name)
    return path


def _parts(path: str) -> list[str]:
    return [found.strip("\"'") for found in re.findall(_PART, path)]


def _lines_outside_of_texts(text: str) -> Iterator[tuple[int, str]]:
    """The lines with their numbers, without those that continue a text of several lines."""
    closing = None
    for number, line in enumerate(text.split("\n"), 1):
        if closing is not None:
            closing = None if closing in line else closing
            continue
        yield number, line
        closing = next((mark for mark in _LONG_TEXTS if line.count(mark) % 2), None)


def refuse_two_spellings() -> None:
    """Raise `ConfigError` if two variables of the environment give one setting: they differ only by
    case, and either could win.
    """
    found: dict[str, str] = {}
    for variable in sorted(os.environ):
        name = variable.upper()
        first = found.setdefault(name, variable)
        if first != variable and name.startswith(ENVIRONMENT[0]) and ENVIRONMENT[1] in name:
            raise ConfigError(
                f"{first} and {variable} in the environment are two spellings of one setting",
                advice=f"keep {name}, and unset the other",
            )
