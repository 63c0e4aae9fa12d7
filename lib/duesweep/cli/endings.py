"""What is true when a command is interrupted or terminated, in one sentence for each command that
does not say it where it is declared.
"""

from collections.abc import Mapping, Sequence

from duesweep.cli.commands import NOTHING

SENTENCES: Mapping[tuple[str, ...], str] = {
    ("sweep",): "no message is lost, and the next sweep continues",
    ("watch",): "no message is lost, and the next watcher or sweep continues",
    ("handover",): "no message is lost; run `duesweep handover` again to continue",
    ("doctor",): NOTHING,
    ("plan",): NOTHING,
}


def command_of(arguments: Sequence[str]) -> tuple[str, ...]:
    """The command that these arguments give, as in `("queue", "purge")`; empty: none."""
    given = tuple(arguments)
    for length in (3, 2, 1):
        if given[:length] in SENTENCES:
            return given[:length]
    return ()


def ending(arguments: Sequence[str]) -> str:
    """What is true of the command if it ends before it is done."""
    return SENTENCES.get(command_of(arguments), "it may be done in part")
