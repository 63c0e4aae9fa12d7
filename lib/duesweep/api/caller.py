"""Who gives a command, and why."""

import getpass
import os
import socket

from duesweep.core.errors import ConfigError


def given_by() -> str:
    """The user of the operating system, and the machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a number that has no name.
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def require_reason(reason: str | None, messages: int) -> None:
    """Raise `ConfigError` for a command on several messages without a reason."""
    if messages > 1 and not (reason and reason.strip()):
        raise ConfigError(
            f"The command is about {messages:,} messages, and no reason is given",
            advice="give one with --reason; the ledger keeps it",
        )
