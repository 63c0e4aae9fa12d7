"""`cancel` and `reschedule`: choose waiting messages, and change them in batches."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from duesweep.core.change import (
    SCAN_LIMIT,
    CommandName,
    MessageFilter,
    WaitingMessage,
    spelled_alike,
)
from duesweep.core.errors import ConfigError
from duesweep.core.message import Message
from duesweep.core.policy import BatchSize
from duesweep.core.routing import find_unknown
from duesweep.core.times import Moment
from duesweep.core.world import exact_instant
from duesweep.drivers.statements import retry_lost_transactions
from duesweep.ledger.ledger import Ledger
from duesweep.operations.command import (
    Changed,
    Chosen,
    CommandWork,
    Tally,
    act,
    refuse_unclear,
    refuse_unknown,
)
from duesweep.operations.endpoint import Endpoint, Stop
from duesweep.operations.messages import (
    Waiting,
    Wanted,
    open_look,
    opened_choice,
)
from duesweep.stores.people import OperatorTask
from duesweep.stores.sweeps import SweepRun
from duesweep.stores.task import Claim

# This many of the messages that a command is to change are shown.
_SHOWN = 10
# The rest of a message's row, without its body.
_USUAL_BYTES = 2_000


@dataclass(frozen=True, kw_only=True)
class ChosenMessages(Chosen):
    """Messages that `command` is to change; the first ones are shown. `gone`: the number of given
    keys or message ids without a message. One that is not due in the `wanted` span any more,
    because it was rescheduled, counts as gone later.
    """

    messages: Sequence[Waiting]
    now: datetime = field(repr=False)
    wanted: MessageFilter = field(repr=False)
    lock_keys: Sequence[str] = field(repr=False)
    sizes: Sequence[int] = field(repr=False)

    @property
    def is_exact(self) -> bool:
        named = MessageFilter(keys=self.wanted.keys, message_ids=self.wanted.message_ids)
        return self.wanted == named and not self.wanted.is_empty


def choose(
    endpoint: Endpoint,
    wanted: Wanted,
    command: CommandName = CommandName.CANCEL,
    *,
    everything: bool = False,
    scan_limit: int = SCAN_LIMIT,
) -> ChosenMessages:
    """The messages that a filter means, which `command` is to change. `everything` has to be said
    for a filter without conditions. Raises `ConfigError` if more than `scan_limit` would have to be
    looked at, and for a destination that neither a message nor a queue has: a typing error.
    """
    context, own_name = endpoint.context, endpoint.context.own_name
    lock_keys: list[str] = []
    sizes: list[int] = []
    destinations: Counter[str] = Counter()
    first: list[WaitingMessage] = []
    with open_look(context.store) as session:
        now = session.due.horizon().server_time
        meant = wanted if isinstance(wanted, MessageFilter) else wanted(now)
        refuse_unclear(command, is_empty=meant.is_empty, everything=everything)
        unfound = set(meant.message_ids)
        with opened_choice(session.people, meant, own_name, scan_limit) as choice:
            for page in choice:
                lock_keys += [one.lock_key for one in page]
                sizes += [one.body_bytes for one in page]
                unfound -= {one.message.message_id for one in page}
                destinations.update(one.destination(own_name) or "" for one in page)
                first += page[: _SHOWN - len(first)]
    if choice.is_cut:
        raise ConfigError(
            f"There are more than {scan_limit:,} messages to look at, so the filter could "
            "mean more of them; nothing was changed",
            advice="choose fewer by their Due (--due-after, --due-before), or raise --scan-limit",
        )
    unknown = find_unknown(meant.destination, choice.destinations)
    refuse_unknown(context, unknown, "waiting message", "`duesweep list` shows the messages")
    keys = {spelled_alike(key) for key in meant.keys}
    return ChosenMessages(
        command=command,
        source=context.store.source,
        would_change=len(lock_keys),
        gone=max(0, len(keys) - len(lock_keys), len(unfound)),
        destinations=dict(destinations.most_common()),
        messages=[Waiting.of(one, own_name) for one in first],
        unknown_destination=unknown,
        now=now,
        wanted=meant,
        lock_keys=lock_keys,
        sizes=sizes,
    )


def cancel(
    endpoint: Endpoint,
    wanted: MessageFilter | ChosenMessages,
    *,
    reason: str | None = None,
    everything: bool = False,
    stop: Stop | None = None,
) -> Changed:
    """Take messages out of the store, whole into the ledger. `everything` has to be said for a
    filter without conditions, a reason has to be given for more than one message.
    """

    def change(
        session: OperatorTask, run: SweepRun, claim: Claim, messages: Sequence[Message]
    ) -> int:
        session.cancel(run, messages, claim.server_us)
        return len(messages)

    command = CommandName.CANCEL
    if isinstance(wanted, MessageFilter):
        wanted = choose(endpoint, wanted, command, everything=everything)
    work = _in_batches(wanted, endpoint.context.batch_size, change)
    return act(endpoint, wanted, command, work, reason=reason, stop=stop)


def reschedule(
    endpoint: Endpoint,
    wanted: MessageFilter | ChosenMessages,
    *,
    to: Moment | None = None,
    by: timedelta | None = None,
    reason: str | None = None,
    everything: bool = False,
    stop: Stop | None = None,
) -> Changed:
    """Give messages another Due: at `to`, or moved `by` a time. Otherwise as `cancel`."""
    if (to is None) == (by is None):
        raise ConfigError("`reschedule` needs either `to` or `by`", advice="give one of them")

    def due_of(message: Message, now: datetime) -> datetime | None:
        """None: it has none that could be moved, or one outside of Python's years."""
        if to is not None:
            return to.at(now)
        if by is None or message.instant_us is None:
            return None
        return exact_instant(message.instant_us + by // timedelta(microseconds=1))

    def change(
        session: OperatorTask, run: SweepRun, claim: Claim, messages: Sequence[Message]
    ) -> int:
        now = run.horizon.server_time
        dues = [(message, due_of(message, now)) for message in messages]
        known = [(message, new) for message, new in dues if new is not None]
        session.reschedule(run, known, claim.server_us)
        return len(known)

    command = CommandName.RESCHEDULE
    if isinstance(wanted, MessageFilter):
        wanted = choose(endpoint, wanted, command, everything=everything)
    work = _in_batches(wanted, endpoint.context.batch_size, change)
    return act(endpoint, wanted, command, work, reason=reason, stop=stop)


# Changes messages that are held, in the transaction that holds them. Returns how many it changed.
_Change = Callable[[OperatorTask, SweepRun, Claim, Sequence[Message]], int]


def _in_batches(chosen: ChosenMessages, batch_size: BatchSize, change: _Change) -> CommandWork:
    def work(_: Ledger, session: OperatorTask, run: SweepRun) -> Iterator[Tally]:
        @retry_lost_transactions
        def do(lock_keys: Sequence[str]) -> Tally:
            with session.transaction():
                claim = session.hold(run, lock_keys)
                meant = [one for one in claim.messages if chosen.wanted.due.has(one.instant_us)]
                changed = change(session, run, claim, meant)
            return Tally(
                changed=changed,
                held=claim.skipped,
                gone=claim.gone + len(claim.messages) - len(meant),
                refused=len(meant) - changed,
            )

        sizes = [size + _USUAL_BYTES for size in chosen.sizes]
        for batch in batch_size.batches(chosen.lock_keys, sizes):
            yield do(batch)

    return work
