"""Asks whether to go on."""

import sys

from duesweep.core.errors import ConfigError, make_printable

_YES = {"y", "yes"}


def confirm(question: str) -> bool:
    """Whether the person at the terminal says yes. Raises `ConfigError` where there is none."""
    if not sys.stdin.isatty():
        raise ConfigError(
            f"{question}: nobody can be asked, because there is no terminal",
            advice="add --yes to do it without being asked, or --dry-run to see what it would do",
        )
    print(make_printable(f"{question}? [y/N] "), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in _YES
