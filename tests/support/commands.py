"""Commands in the process of the test."""

import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

from duesweep.cli.app import main


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """What it printed with --json."""
        return json.loads(self.out)

    @property
    def told(self) -> str:
        return self.out + self.err


def run(*arguments: str) -> Ran:
    """Run a command to its end."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = main(arguments)
    return Ran(code, out.getvalue(), err.getvalue())
