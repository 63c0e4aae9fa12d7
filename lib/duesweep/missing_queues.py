"""Whether a connection has any of the queues that the store's messages go to.

A connection that has none of them is a wrong setting, a typo in a route for example. Each message
would fail, and one of the MSMQ transport be given up at once. So a sweep ends before it claims any.
What waits in the store counts as well as what is due: then a queue that is gone holds up nobody
while another of its connection is there. Where there is no other, somebody has to say where the
messages belong, with a route for example.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from duesweep.context import SweepContext
from duesweep.errors import ConfigError, MessageError, StoreError, UnreadableAddressError
from duesweep.queues.base import Queue, QueueSession, Routing
from duesweep.stores.abilities import KnowsDestinations
from duesweep.stores.base import DriverSession
from duesweep.stores.values import Horizon

_SHOWN = 3


@dataclass(slots=True)
class _Connection:
    """`missing` says of each destination where it leads; it `may_deliver` where one leads to a
    queue, or where that cannot be known now.
    """

    missing: dict[str, str] = field(default_factory=dict)
    may_deliver: bool = False


def refuse_missing_queues(
    context: SweepContext, session: DriverSession, horizon: Horizon | None
) -> None:
    """Raise `ConfigError` where a connection has none of the queues that messages due by `horizon`
    (None: any) go to, nor of those that others in the store go to; or where no route takes any.

    Stores that have to look into messages for their destinations are not asked.
    """
    if not isinstance(session, KnowsDestinations):
        return
    asked = session.stored_destinations() if horizon is None else session.due_destinations(horizon)
    if not asked:
        return
    with context.store.open_task() as task, context.queue.open(task) as queue:
        found = _without_queues(context.queue, queue, asked)
        if found and horizon is not None:
            everywhere = [*asked, *session.stored_destinations()]
            stored = _without_queues(context.queue, queue, list(dict.fromkeys(everywhere)))
            found = {name: found[name] for name in sorted(found) if name in stored}
    if found:
        raise _refusal(found)


def _without_queues(
    queue: Queue, session: QueueSession, destinations: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Where the destinations lead, by connection, of those connections that have no queue for any;
    under no name, where no destination leads to any connection.
    """
    connections: dict[str, _Connection] = {}
    unrouted: dict[str, str] = {}
    for address in destinations:
        try:
            name, target = queue.way(address) if isinstance(queue, Routing) else ("", address)
        except UnreadableAddressError:
            # One message's fault, and no setting's.
            continue
        except MessageError as error:
            unrouted[address] = str(error)
            continue
        connection = connections.setdefault(name or "default", _Connection())
        if not connection.may_deliver:
            _ask(session, address, target, connection)
    if unrouted and not connections:
        return {"": unrouted}
    # Nothing is missing where all that leads to a connection are addresses that cannot be read.
    return {
        name: one.missing
        for name, one in connections.items()
        if one.missing and not one.may_deliver
    }


def _ask(session: QueueSession, address: str, target: str, connection: _Connection) -> None:
    try:
        session.resolve(address)
    except UnreadableAddressError:
        # One message's fault, and no setting's.
        return
    except MessageError as error:
        connection.missing[address] = f"{address} goes to {target} ({error})"
    except StoreError:
        # Out of reach, or closed to this role: the sweep says so, and charges nobody.
        connection.may_deliver = True
    else:
        connection.may_deliver = True


def _refusal(found: dict[str, dict[str, str]]) -> ConfigError:
    if "" in found:
        return ConfigError(
            f"No [[route]] takes any of the messages' destinations: {_some(list(found['']))}. "
            "Nothing was claimed",
            advice="add a [[route]] that does",
        )
    told = [
        f"queues.{name} has none of the queues that its messages go to: "
        f"{_some(list(missing.values()))}"
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


def _some(texts: Sequence[str]) -> str:
    more = len(texts) - _SHOWN
    return ", ".join(texts[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
