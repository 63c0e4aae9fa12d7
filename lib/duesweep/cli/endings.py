"""What is true when a command is interrupted or terminated, in one sentence for each command."""

from collections.abc import Mapping, Sequence

_NOTHING = "nothing was changed"
_CHANGES = (
    "what it committed stays done, and the next sweep or command writes that to the ledger's "
    "`changes`; look there before you run it again"
)
_AGAIN = "it may be done in part; run it again, which does no harm"
_SENT = "the message may have been sent or not; look before you send it again"
_PURGED = "it may have removed messages already; those that it did not remove are still there"

SENTENCES: Mapping[tuple[str, ...], str] = {
    ("sweep",): "no message is lost, and the next sweep continues",
    ("watch",): "no message is lost, and the next watcher or sweep continues",
    ("report",): "nothing was changed, and a page that is there stays as it was",
    ("handover",): "no message is lost; run `duesweep handover` again to continue",
    ("setup",): _AGAIN,
    ("doctor",): _NOTHING,
    ("config",): _NOTHING,
    ("demo",): "run it again: it begins anew",
    ("plan",): _NOTHING,
    ("list",): _NOTHING,
    ("show",): _NOTHING,
    ("cancel",): _CHANGES,
    ("reschedule",): _CHANGES,
    ("restore",): _CHANGES,
    ("pause",): _AGAIN,
    ("resume",): _AGAIN,
    ("paused",): _NOTHING,
    ("audit",): _NOTHING,
    ("maintain",): _AGAIN,
    ("errors", "list"): _NOTHING,
    ("errors", "show"): _NOTHING,
    ("errors", "replay"): _CHANGES,
    ("errors", "discard"): _CHANGES,
    ("schedule", "cron"): _NOTHING,
    ("schedule", "systemd"): _NOTHING,
    ("schedule", "kubernetes"): _NOTHING,
    ("schedule", "airflow"): _NOTHING,
    ("queue", "create"): _AGAIN,
    ("queue", "send"): _SENT,
    ("queue", "receive"): "the message that was printed last may still be in the queue; those "
    "before it are removed",
    ("queue", "peek"): _NOTHING,
    ("queue", "purge"): _PURGED,
    ("queue", "purge-expired"): _PURGED,
    ("subscriptions", "create"): _AGAIN,
    ("subscriptions", "list"): _NOTHING,
    ("subscriptions", "add"): _AGAIN,
    ("subscriptions", "remove"): _AGAIN,
    ("rabbitmq", "send"): _SENT,
    ("rabbitmq", "delays", "create"): _AGAIN,
    ("rabbitmq", "delays", "verify"): _NOTHING,
    ("rabbitmq", "delays", "migrate"): "no message is lost, but one may exist twice; run it again "
    "to move the rest",
    ("rabbitmq", "endpoint", "create"): _AGAIN,
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
