"""Asks whether whoever gives a command means it."""

import sys

from duesweep.errors import ConfigError
from duesweep.texts import make_printable


def is_agreed(question: str, *, yes: bool) -> bool:
    """Ask on the terminal, unless `yes` was given. Raises `ConfigError` if there is none."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise ConfigError(
            f"{question} Nobody can be asked: standard input is not a terminal",
            advice="give --yes, and see with --dry-run what it would do",
        )
    print(f"{make_printable(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
