"""Runs a command in this process: on a terminal of 80 columns, in a pipe, or for its document."""

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from typing import Any

import pytest

from duesweep.cli.app import main

COLUMNS = 80
# Of a document as it is recorded.
_LINE = 100
# The variables that rich and Typer read about a terminal.
_OF_TERMINALS = (
    *("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"),
    *("PY_COLORS", "GITHUB_ACTIONS", "_TYPER_FORCE_DISABLE_TERMINAL", "TERMINAL_WIDTH"),
)


class _Stream(TextIOWrapper):
    """A standard stream that says whether it is a terminal."""

    def __init__(self, text: str = "", *, is_terminal: bool = False) -> None:
        super().__init__(BytesIO(text.encode()), encoding="utf-8", write_through=True)
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    @property
    def text(self) -> str:
        self.flush()
        printed = self.buffer
        assert isinstance(printed, BytesIO)
        return printed.getvalue().decode()


@dataclass(frozen=True, slots=True)
class Printed:
    """The output of a command, and its exit code."""

    arguments: Sequence[str]
    out: str
    err: str
    code: int

    @property
    def text(self) -> str:
        return self._with(self.out)

    @property
    def document(self) -> str:
        """The same of a command that prints JSON documents, one to a line: laid out for people."""
        documents = "\n".join(lay_out(json.loads(line)) for line in self.out.splitlines())
        return self._with(documents + "\n" * self.out.endswith("\n"))

    def _with(self, out: str) -> str:
        line = f"$ {shlex.join(['duesweep', *self.arguments])}\n"
        # A question ends its line with the typed answer, so the line on standard error may have no
        # end.
        missing = "" if self.err.endswith("\n") else "\n"
        err = f"--- standard error\n{self.err}{missing}" if self.err else ""
        return f"{line}{_ended(out)}{err}--- exit code {self.code}\n"


def lay_out(value: Any, indent: str = "") -> str:
    """A JSON document, with each part that fits into a line on a line of its own."""
    line = json.dumps(value, ensure_ascii=False)
    if not value or not isinstance(value, dict | list) or len(indent) + len(line) <= _LINE:
        return line
    more = f"{indent} "
    parts = (
        [f"{json.dumps(name)}: {lay_out(one, more)}" for name, one in value.items()]
        if isinstance(value, dict)
        else [lay_out(one, more) for one in value]
    )
    first, last = "{}" if isinstance(value, dict) else "[]"
    inner = ",\n".join(f"{more}{part}" for part in parts)
    return f"{first}\n{inner}\n{indent}{last}"


def _ended(part: str) -> str:
    return part if not part or part.endswith("\n") else f"{part}\n--- no end of line\n"


def run(
    arguments: Sequence[str],
    *,
    is_terminal: bool = False,
    has_colours: bool = False,
    answer: str | None = None,
) -> Printed:
    """Run a command. `answer` is typed on a terminal; None: standard input is none."""
    with _environment(is_terminal=is_terminal, has_colours=has_colours) as patch:
        out, err = _Stream(is_terminal=is_terminal), _Stream()
        patch.setattr(sys, "stdin", _Stream(answer or "", is_terminal=answer is not None))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        code = main(arguments)
    return Printed(arguments, out.text, err.text, code)


@contextmanager
def _environment(*, is_terminal: bool, has_colours: bool) -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        for name in _OF_TERMINALS:
            patch.delenv(name, raising=False)
        patch.setenv("TERM", "xterm-256color")
        if is_terminal:
            # In place of the size of the terminal that may have started pytest.
            patch.setenv("COLUMNS", str(COLUMNS))
            patch.setenv("LINES", "25")
        if not has_colours:
            patch.setenv("NO_COLOR", "1")
        yield patch
