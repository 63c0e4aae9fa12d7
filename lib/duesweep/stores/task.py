"""The contract of batches: a task's session claims messages and finishes them."""

from abc import abstractmethod
from collections.abc import Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from duesweep.core.account import SliceEnd
from duesweep.core.errors import UnusualBatchError, not_supported
from duesweep.core.message import Address, Message, Outcome
from duesweep.core.policy import RateLimit
from duesweep.stores.sweeps import SweepRun
from duesweep.stores.tombstone import Tombstones


@dataclass(frozen=True, slots=True)
class Claim:
    """Messages whose rows this transaction has locked, eligible and due, in the order of their Due.

    Each message says at which instant it is due (`Message.instant_us`). `server_us` is the server's
    time at the claim, microseconds since 1970-01-01 UTC. `unread` are claim keys for a claim of
    their own: their messages were more than a batch may hold in bytes. Of the other claim keys
    that led to no message, `skipped` led to rows that others hold, `gone` to none, `later` to
    messages that are not due, or not eligible, any more, and `held` to paused ones. So the number
    of claim keys is the sum of all six. `paused` are the patterns of destinations to which nothing
    may go now; messages for them may be among `messages`.
    """

    messages: tuple[Message, ...]
    server_us: int
    unread: Sequence[str] = ()
    skipped: int = 0
    gone: int = 0
    later: int = 0
    paused: tuple[str, ...] = ()
    held: int = 0

    def __post_init__(self) -> None:
        # Without it a message that is not due yet would pass for one that is.
        if any(m.instant_us is None and m.due_us is not None for m in self.messages):
            raise ValueError("A claim has to set the instant_us of each message with a finite Due")


class Forwarded(NamedTuple):
    """Claim keys of messages to one destination. `forward` is how the store has that written; None:
    it does not know, and the destinations may differ.
    """

    forward: str | None
    keys: Sequence[str]


BETWEEN_FORWARDS = "\x1f"

# If a store puts messages itself: its queues' name for a table of the store's own database.
Table = Hashable


@dataclass(frozen=True, slots=True)
class Selection:
    """Messages that a session may move: the `addresses` of their destinations. `rest` is the
    store's own.
    """

    addresses: Sequence[Address]
    rest: Any = None


@dataclass(frozen=True, slots=True)
class Moved:
    """Messages that are in their queues, or will be with `finish_moved`; the other values are as in
    a `Claim`. `rest` is the store's own.
    """

    tombstones: Tombstones
    server_us: int
    gone: int = 0
    later: int = 0
    paused: tuple[str, ...] = ()
    rest: Any = None


# The keys of messages by their claim keys, where these are not keys.
LeftAlone = Mapping[str, Collection[str]]
NOBODY: LeftAlone = MappingProxyType({})


class TaskSession(Protocol):
    """One task's session: the batch contract. Not thread-safe. A store may leave the
    answers of the methods after `end_slice` as they are.

    `can_move`: it has the methods `select`, `move` and `finish_moved`, and its server can do it.
    """

    can_move: bool = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # A class that claims in its own way, or by another base, is asked for that, unless it also
        # moves in its own.
        owner = next(kind for kind in cls.__mro__ if {"claim", "move"} & vars(kind).keys())
        if "move" not in vars(owner):
            cls.can_move = False

    def transaction(self) -> AbstractContextManager[None]:
        """The transaction in which a batch is claimed and finished; nested, a savepoint."""

    @abstractmethod
    def claim(
        self, run: SweepRun, claim_keys: Sequence[str], left_alone: LeftAlone = NOBODY
    ) -> Claim:
        """Lock the messages of the claim keys, at most one a claim key, if it is still
        there, due by the horizon and eligible; skip rows that others hold, wait for no row. Raises
        `SweepClosedError` when the sweep was closed by then, and `SweepStoppedError` when it is
        to stop (see `Sweeps.stop`). Without claim keys, that is all it does.

        A claim key of a store that finds messages by their Due may lead to another one of that Due,
        but to none that is `left_alone`. If claim keys are keys, that is ignored.
        """

    def grant_exhausted(self, run: SweepRun, wanted: int, limit: int) -> int:
        """How many of `wanted` more messages the sweep may exhaust. Serialised per sweep: other
        slices wait until this transaction, in which `finish` counts them, has ended.
        """

    @abstractmethod
    def finish(
        self, run: SweepRun, slice_number: int, outcomes: Sequence[Outcome], server_us: int
    ) -> None:
        """Remove delivered and exhausted messages, count failures, journal all, in the claim's
        transaction. Messages that stay are no affair of the store.
        """

    def end_slice(self, run: SweepRun, slice_number: int, end: SliceEnd) -> None:
        """Journal the end of a slice, its account and whether it is complete."""

    def claim_key(self, message: Message) -> str:
        """The claim key by which a claimed message that is released is found again."""
        return message.key

    def address_of(self, forward: str) -> Address:
        """The address in a destination as the plan has it. Raises `UnusualBatchError` if it cannot
        be read there.
        """
        return forward or None

    def reserve(self, limit: RateLimit, messages: int) -> float:
        """Reserve this many messages of a limit, after all earlier reservations of any
        sweep. Returns after how many seconds they may go. Not within a transaction: others wait for
        its end.
        """
        raise not_supported("[[limit]]")

    def select(
        self, run: SweepRun, groups: Sequence[Forwarded], left_alone: LeftAlone = NOBODY
    ) -> AbstractContextManager[Selection]:
        """Choose the messages of the claim keys, to move them in the block. Raises
        `UnusualBatchError` if it cannot. The block is the transaction, unless `finish_moved` alone
        is one.
        """
        raise UnusualBatchError("the store moves no messages")

    def move(self, run: SweepRun, selection: Selection, tables: Mapping[Address, Table]) -> Moved:
        """Remove the selected messages that a claim would lock, and put them into their queues,
        here or in `finish_moved`. `tables` has one for each address of the selection.

        Raises `UnusualBatchError` if it cannot move all that a claim might lock, if a message
        is not as usual, or if a queue refuses one. Then the transaction has to be rolled back.
        """
        raise UnusualBatchError("the store moves no messages")

    def finish_moved(self, run: SweepRun, slice_number: int, moved: Moved, server_us: int) -> None:
        """As `finish`, for messages that were moved. Raises `UnusualBatchError` as `move` does."""
        raise UnusualBatchError("the store moves no messages")
