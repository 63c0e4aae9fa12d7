"""Who gives a command, and whether they mean it."""

import getpass
import os
import socket
import sys

from duesweep.errors import ConfigError
from duesweep.texts import make_printable


def given_by() -> str:
    """The user of the operating system, and the machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a number that has no name.
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


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


def require_reason(reason: str | None, messages: int) -> None:
    """Raise `ConfigError` for a command on several messages without a reason."""
    if messages > 1 and not (reason and reason.strip()):
        raise ConfigError(
            f"The command is about {messages:,} messages, and no reason is given",
            advice="give one with --reason; the ledger keeps it",
        )
