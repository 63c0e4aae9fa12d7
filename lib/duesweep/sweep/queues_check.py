"""Stops a sweep whose connection has none of the queues that the store's messages go to, if
the destination is a column there: in tables of MSMQ and SQL persistence, not of the transports.

Such a connection is a wrong setting, for example a typo in a route. Each message would fail, and an
MSMQ message would be exhausted at once. So the sweep ends before it claims any message. All stored
messages count, not only due ones. So one missing queue stops nothing while its connection
has another of the queues. If it has no other, a person must state their destination, for
example with a route.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from duesweep.core.errors import ConfigError, MessageError, StoreError, UnreadableAddressError
from duesweep.queues.base import Queue, QueueSession
from duesweep.stores.due import Due, Horizon
from duesweep.sweep.job import SweepContext

_SHOWN = 3


def refuse_missing_queues(context: SweepContext, due: Due, horizon: Horizon | None) -> None:
    """Raise `ConfigError` if a connection has none of the queues that stored messages go to, or if
    no route takes any of them.

    Checks the messages that are due by `horizon` first (None: all messages at once). Does nothing
    for stores that would have to read each message to know its destination.
    """
    asked = due.destinations(horizon)
    if not asked:
        return
    with context.store.open_task() as task, context.queue.open(task) as queue:
        found = _find_connections_without_queues(context.queue, queue, asked)
        if found and horizon is not None:
            everywhere = dict.fromkeys([*asked, *due.destinations(None)])
            stored = _find_connections_without_queues(context.queue, queue, everywhere)
            found = {name: found[name] for name in sorted(found) if name in stored}
    if found:
        raise _make_error(found)


def find_missing_queues(context: SweepContext, destinations: Iterable[str]) -> dict[str, str]:
    """Why messages for these destinations would fail now: no queue, no route, or not allowed. Says
    nothing of a destination that cannot be asked about now.
    """
    missing: dict[str, str] = {}
    with suppress(StoreError), context.store.open_task() as task, context.queue.open(task) as queue:
        for address in destinations:
            try:
                queue.resolve(None if address == context.own_name else address)
            except MessageError as error:
                missing[address] = str(error)
            except StoreError:
                # Out of reach, or this role has no right.
                continue
    return missing


def _find_connections_without_queues(
    queue: Queue, session: QueueSession, destinations: Iterable[str]
) -> Mapping[str, Sequence[str]]:
    """The connections that have a queue for none of the destinations: by connection, where each
    destination leads. If no destination leads to any connection, the name is empty.
    """
    missing: dict[str, list[str]] = {}
    unrouted: list[str] = []
    # A destination leads to a queue there, or that cannot be known now.
    may_deliver: set[str] = set()
    for address in destinations:
        name = None
        try:
            routed, target = queue.route(address)
            name = routed or "default"
            missing.setdefault(name, [])
            if name not in may_deliver:
                session.resolve(address)
                may_deliver.add(name)
        except UnreadableAddressError:
            # The message is at fault, not a setting.
            continue
        except MessageError as error:
            if name is None:
                unrouted.append(address)
            else:
                missing[name].append(f"{address} goes to {target} ({error})")
        except StoreError:
            # Out of reach, or this role has no right: the sweep reports it, and charges no message.
            may_deliver.add(str(name))
    if unrouted and not missing:
        return {"": unrouted}
    # If all addresses that lead to a connection are unreadable, no queue is missing.
    return {name: texts for name, texts in missing.items() if texts and name not in may_deliver}


def _make_error(found: Mapping[str, Sequence[str]]) -> ConfigError:
    if "" in found:
        return ConfigError(
            "No [[route]] takes any of the messages' destinations: "
            f"{_join_first(found[''])}. Nothing was claimed",
            advice="add a [[route]] that takes them",
        )
    told = [
        f"queues.{name} has none of the queues that its messages go to: {_join_first(texts)}"
        for name, texts in sorted(found.items())
    ]
    sections = " and ".join(f"[queues.{name}]" for name in sorted(found))
    return ConfigError(
        f"{'. '.join(told)}. Nothing was claimed",
        advice=(
            f"correct [[route]] or {sections}, or, if these queues are gone for good, route their "
            "messages to a queue that is there"
        ),
    )


def _join_first(texts: Sequence[str]) -> str:
    more = len(texts) - _SHOWN
    return ", ".join(texts[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
