"""Finds the waiting messages that a command is to change."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from duesweep.change_messages import Chosen
from duesweep.choose import choose, open_look
from duesweep.core.change import MessageFilter, WaitingMessage, spelled_alike
from duesweep.core.errors import ConfigError
from duesweep.core.routing import UnknownDestination, find_unknown
from duesweep.report.waiting import destination_text
from duesweep.sweep.job import SweepContext

_SHOWN = 10
# A filter, if it is this time on the server.
FilterAt = Callable[[datetime], MessageFilter]


@dataclass(slots=True)
class FoundMessages:
    """The messages that were chosen, without their headers; the first of them whole. `unknown`: the
    filter's destination, if no message is for it.
    """

    wanted: MessageFilter
    now: datetime
    lock_keys: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    destinations: Counter[str] = field(default_factory=Counter)
    first: list[WaitingMessage] = field(default_factory=list)
    message_ids: set[str | None] = field(default_factory=set)
    unknown: UnknownDestination | None = None

    def add(self, messages: Sequence[WaitingMessage], own_queue: str) -> None:
        """Note these, too."""
        self.lock_keys += [one.lock_key for one in messages]
        self.sizes += [one.body_bytes for one in messages]
        self.message_ids.update(
            set(self.wanted.message_ids) & {m.message.message_id for m in messages}
        )
        self.destinations.update(destination_text(one, own_queue) for one in messages)
        self.first += messages[: _SHOWN - len(self.first)]

    @property
    def missing(self) -> int:
        """How many of the keys or message ids that were given lead to no message."""
        keys = {spelled_alike(key) for key in self.wanted.keys}
        ids = set(self.wanted.message_ids) - self.message_ids
        return max(0, len(keys) - len(self.lock_keys), len(ids))

    @property
    def chosen(self) -> Chosen:
        """What is to be changed."""
        return Chosen(self.lock_keys, self.sizes, self.wanted.due)


def find_messages(
    context: SweepContext,
    own_queue: str,
    wanted: FilterAt,
    scan_limit: int,
    *,
    tell: Callable[[int], None] | None = None,
) -> FoundMessages:
    """The messages that wait and that a filter means, as it is at the server's time. `tell` is told
    how many were looked at by now. Raises `ConfigError` if more than `scan_limit` would have to be.
    """
    with open_look(context.store) as session:
        now = session.horizon().server_time
        found = FoundMessages(wanted(now), now)
        with choose(session, found.wanted, own_queue, scan_limit) as choice:
            for page in choice:
                found.add(page, own_queue)
                if tell is not None:
                    tell(choice.looked_at)
    if choice.is_cut:
        raise ConfigError(
            f"There are more than {scan_limit:,} messages to look at, so the filter could "
            "mean more of them; nothing was changed",
            advice="choose fewer by their Due (--due-after, --due-before), or raise --scan-limit",
        )
    found.unknown = find_unknown(found.wanted.destination, choice.destinations)
    return found
