"""Stops a sweep whose connection has none of the queues that the store's messages go to, if
the destination is a column there: in tables of MSMQ and SQL persistence, not of the transports.

Such a connection is a wrong setting, for example a typo in a route. Each message would fail, and an
MSMQ message would be exhausted at once. So the sweep ends before it claims any message. All stored
messages count, not only due ones. So one missing queue stops nothing while its connection
has another of the queues. If it has no other, a person must state their destination, for
example with a route.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from duesweep.core.errors import ConfigError, MessageError, StoreError, UnreadableAddressError
from duesweep.queues.base import Queue, QueueSession
from duesweep.stores.due import Due, Horizon
from duesweep.sweep.job import SweepContext

_SHOWN = 3


@dataclass(slots=True)
class _Connection:
    """One connection. `missing`: for each destination without a queue, where it leads.
    `may_deliver`: a destination leads to a queue, or that cannot be known now.
    """

    missing: dict[str, str] = field(default_factory=dict)
    may_deliver: bool = False


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
            everywhere = [*asked, *due.destinations(None)]
            stored = _find_connections_without_queues(
                context.queue, queue, list(dict.fromkeys(everywhere))
            )
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
    queue: Queue, session: QueueSession, destinations: Sequence[str]
) -> dict[str, dict[str, str]]:
    """The connections that have a queue for none of the destinations: by connection, where each
    destination leads. If no destination leads to any connection, the name is empty.
    """
    connections: dict[str, _Connection] = {}
    unrouted: dict[str, str] = {}
    for address in destinations:
        try:
            name, target = queue.route(address)
        except UnreadableAddressError:
            # The message is at fault, not a setting.
            continue
        except MessageError as error:
            unrouted[address] = str(error)
            continue
        connection = connections.setdefault(name or "default", _Connection())
        if not connection.may_deliver:
            _look_for_queue(session, address, target, connection)
    if unrouted and not connections:
        return {"": unrouted}
    # If all addresses that lead to a connection are unreadable, no queue is missing.
    return {
        name: one.missing
        for name, one in connections.items()
        if one.missing and not one.may_deliver
    }


def _look_for_queue(
    session: QueueSession, address: str, target: str, connection: _Connection
) -> None:
    try:
        session.resolve(address)
    except UnreadableAddressError:
        # The message is at fault, not a setting.
        return
    except MessageError as error:
        connection.missing[address] = f"{address} goes to {target} ({error})"
    except StoreError:
        # Out of reach, or this role has no right: the sweep reports it, and charges no message.
        connection.may_deliver = True
    else:
        connection.may_deliver = True


def _make_error(found: dict[str, dict[str, str]]) -> ConfigError:
    if "" in found:
        return ConfigError(
            "No [[route]] takes any of the messages' destinations: "
            f"{_join_first(list(found['']))}. Nothing was claimed",
            advice="add a [[route]] that takes them",
        )
    told = [
        f"queues.{name} has none of the queues that its messages go to: "
        f"{_join_first(list(missing.values()))}"
        for name, missing in sorted(found.items())
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
