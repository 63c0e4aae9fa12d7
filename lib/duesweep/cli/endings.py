"""What is true when a command is interrupted or terminated, in one sentence for each command that
does not say it where it is declared.
"""

from collections.abc import Mapping, Sequence

from duesweep.cli.commands import AGAIN, NOTHING

_SENT = "the message may have been sent or not; look before you send it again"
_PURGED = "it may have removed messages already; those that it did not remove are still there"

SENTENCES: Mapping[tuple[str, ...], str] = {
    ("sweep",): "no message is lost, and the next sweep continues",
    ("watch",): "no message is lost, and the next watcher or sweep continues",
    ("report",): "nothing was changed, and a page that is there stays as it was",
    ("handover",): "no message is lost; run `duesweep handover` again to continue",
    ("doctor",): NOTHING,
    ("demo",): "run it again: it begins anew",
    ("plan",): NOTHING,
    ("queue", "create"): AGAIN,
    ("queue", "send"): _SENT,
    ("queue", "receive"): "the message that was printed last may still be in the queue; those "
    "before it are removed",
    ("queue", "peek"): NOTHING,
    ("queue", "purge"): _PURGED,
    ("queue", "purge-expired"): _PURGED,
    ("subscriptions", "create"): AGAIN,
    ("subscriptions", "list"): NOTHING,
    ("subscriptions", "add"): AGAIN,
    ("subscriptions", "remove"): AGAIN,
    ("rabbitmq", "send"): _SENT,
    ("rabbitmq", "delays", "create"): AGAIN,
    ("rabbitmq", "delays", "verify"): NOTHING,
    ("rabbitmq", "delays", "migrate"): "no message is lost, but one may exist twice; run it again "
    "to move the rest",
    ("rabbitmq", "endpoint", "create"): AGAIN,
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
