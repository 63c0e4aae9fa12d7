"""The values that cross the contract of a store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from duesweep.core.message import Headers, Message
from duesweep.core.timeouts import DEFAULT_TIMEOUTS, Timeouts


class TransactionMode(StrEnum):
    """What is promised of moving a message; the names are NServiceBus's `TransportTransactionMode`.

    `RECEIVE_ONLY` is at least once, `SENDS_ATOMIC_WITH_RECEIVE` exactly once where store and queue
    share a transaction, `TRANSACTION_SCOPE` takes a transaction that spans servers.
    """

    NONE = "none"
    RECEIVE_ONLY = "receive-only"
    SENDS_ATOMIC_WITH_RECEIVE = "sends-atomic-with-receive"
    TRANSACTION_SCOPE = "transaction-scope"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What a custom store is made from: the section `store` of the configuration.

    `name`, `schema` and `delayed_table` are None where they are not set. `batch_bytes` limits
    what a claim may read; `options` are the store's own, from `[store.options]`; `timeouts` say how
    long it may wait for a server that does not answer.
    """

    dsn: str = field(repr=False)
    endpoint: str
    name: str | None = None
    schema: str | None = None
    delayed_table: str | None = None
    batch_bytes: int = 8_000_000
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    timeouts: Timeouts = DEFAULT_TIMEOUTS


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to store until it is `due`, an aware datetime. `destination` None is the endpoint's
    own queue. `stored_headers` is the text that a store of the same kind had for these headers and
    this destination, to be stored as it is; None: the store writes one.
    """

    destination: str | None
    headers: Headers
    body: bytes | None
    due: datetime
    stored_headers: str | None = None


@dataclass(frozen=True, slots=True)
class Horizon:
    """What a sweep calls due: everything stored with a Due before `before`.

    `server_time` is the server's clock at that moment. The two differ where the writers' time zone
    is not UTC (docs/decisions/due-and-time-zones.md), and by how far a sweep looks `ahead`. The
    sweep leaves what was stored with a Due before `since` to others; None: it leaves nothing.
    `zone` is the one whose clock stored Dues show, as PostgreSQL calls it; None: UTC.
    """

    before: datetime
    server_time: datetime
    ahead: timedelta = timedelta()
    since: datetime | None = None
    zone: str | None = None

    def looking_ahead(self, ahead: timedelta) -> "Horizon":
        """The horizon of a sweep that looks so far ahead, asked for at the same moment."""
        return replace(self, before=self.before + ahead, ahead=self.ahead + ahead)

    def cut_off(self, cutoff: datetime) -> "Horizon":
        """The same horizon without what is due before an instant."""
        return replace(self, since=cutoff + timedelta(microseconds=self.shift_us))

    @property
    def shift_us(self) -> int:
        """How far the clock that stored Dues show is ahead of the server's, in microseconds, when
        the sweep asked. For the instant of a Due the zone's own rules are exact, where they are
        known.
        """
        shift = self.before - self.ahead - self.server_time
        return (shift.days * 86_400 + shift.seconds) * 1_000_000 + shift.microseconds


@dataclass(frozen=True, slots=True)
class SweepRun:
    """An open sweep, as its tasks know it."""

    sweep_id: UUID
    horizon: Horizon


@dataclass(frozen=True, slots=True)
class Claim:
    """Messages whose rows this transaction has locked, eligible and due, in the order of their Due.

    Each message says at which instant it is due (`Message.instant_us`). `server_us` is the server's
    time at the claim, microseconds since 1970-01-01 UTC. `unread` are claim keys for a claim of
    their own: what they lead to was more than a batch may hold in bytes. Of the other claim keys
    that led to no message, `skipped` led to rows that others hold, `gone` to none, and `later` to
    messages that are not due, or not eligible, any more. So the number of claim keys is the sum of
    all five. `paused` are the patterns of destinations to which nothing may go now; messages for
    them are among `messages`.
    """

    messages: tuple[Message, ...]
    server_us: int
    unread: Sequence[str] = ()
    skipped: int = 0
    gone: int = 0
    later: int = 0
    paused: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Without it a message that is not due yet would pass for one that is.
        if any(m.instant_us is None and m.due_us is not None for m in self.messages):
            raise ValueError("A claim has to set the instant_us of each message with a finite Due")


class Excluded(NamedTuple):
    """A message that a task's session must not claim for now: its claim key, its key, and the size
    of its headers and body in bytes.
    """

    claim_key: str
    key: str
    size: int = 0


@dataclass(frozen=True, slots=True)
class Slices:
    """A plan: how many messages each slice has, and the SQL of their claim keys, for JDBC.

    A claim key is text without commas by which a claim finds one message again: its key, or where
    no key is indexed its Due. The query's columns: `slice` (the number, from 0), `claim_keys` and
    `sizes` (bytes of headers and body), the latter two lists separated by commas, oldest first, and
    `total`: how many claim keys all rows of the slice have together. A slice without claim keys has
    a row, too. Without one, an empty slice would look like a read that broke off.

    A sweep that is planned again counts its slices on: `first` is how many it had before.
    """

    claim_keys_query: str
    planned: tuple[int, ...]
    first: int = 0

    @property
    def found(self) -> int:
        """How many messages are eligible."""
        return sum(self.planned)
