"""The contract of a store, whole: the values that cross it, and the sessions that a store opens.

A store is a value that travels to tasks. A *task session* claims a batch of messages and finishes
it, on one connection, in one transaction. A *driver session* finds due messages and keeps the
sweeps: it opens and closes them, and hands their journal to settle. A store inherits from these
classes, so it has their answers if it does not give its own.
"""

from abc import abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, Self
from uuid import UUID

from duesweep.core.account import SliceEnd, SweepSummary
from duesweep.core.change import (
    Change,
    Command,
    CommandName,
    DueSpan,
    UnsettledCommand,
    WaitingMessage,
)
from duesweep.core.errors import ConfigError, Problem, UnusualBatchError
from duesweep.core.headers import Headers
from duesweep.core.message import Address, BatchResult, Message
from duesweep.core.policy import DEFAULT_TIMEOUTS, Pause, RateLimit, Slicing, Timeouts
from duesweep.stores.tombstone import Tombstones


class TransactionMode(StrEnum):
    """The guarantees of moving a message; the names are NServiceBus's `TransportTransactionMode`.

    `RECEIVE_ONLY` is at least once, `SENDS_ATOMIC_WITH_RECEIVE` exactly once where store and queue
    share a transaction, `TRANSACTION_SCOPE` takes a transaction that spans servers.
    """

    NONE = "none"
    RECEIVE_ONLY = "receive-only"
    SENDS_ATOMIC_WITH_RECEIVE = "sends-atomic-with-receive"
    TRANSACTION_SCOPE = "transaction-scope"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The origin of a custom store: the section `store` of the configuration.

    `name`, `schema` and `delayed_table` are None where they are not set. `batch_bytes` limits the
    bytes that a claim may read; `options` are the store's own, from `[store.options]`; `timeouts`
    say how long it may wait for a server that does not answer.
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
    this destination, to be stored as it is; None: the store writes one. `instant_us` is the Due in
    microseconds since 1970-01-01 UTC where it is outside of Python's years, and `due` the nearest
    instant in them; None: `due` is exact.
    """

    destination: str | None
    headers: Headers
    body: bytes | None
    due: datetime
    stored_headers: str | None = None
    instant_us: int | None = None


@dataclass(frozen=True, slots=True)
class Horizon:
    """The limit of due messages: everything stored with a Due before `before`.

    `server_time` is the server's clock at that moment. The two differ where the writers' time zone
    is not UTC (docs/decisions/plan.md), and by how far a sweep looks `ahead`. The
    sweep leaves messages with a Due before `since` to others; None: it leaves nothing.
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
        """The same horizon without messages due before an instant."""
        return replace(self, since=cutoff + timedelta(microseconds=self.shift_us))

    @property
    def shift_us(self) -> int:
        """How far the clock that stored Dues show is ahead of the server's, in microseconds, when
        the sweep asked. For the instant of a Due the zone's own rules are exact, where they are
        known.
        """
        shift = self.before - self.ahead - self.server_time
        return (shift.days * 86_400 + shift.seconds) * 1_000_000 + shift.microseconds


class Work(NamedTuple):
    """Work for a sweep. `since`: no message of an earlier Due is eligible, so that messages held
    back before that, perhaps a million, are looked at once only. None: the store cannot
    tell.
    """

    since: datetime | None = None


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
    their own: their messages were more than a batch may hold in bytes. Of the other claim keys
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
class Moved:
    """Messages that are in their queues, in the open transaction; the other values are as in a
    `Claim`.
    """

    tombstones: Tombstones
    server_us: int
    gone: int = 0
    later: int = 0
    paused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Slices:
    """A plan: how many messages each slice has, and the SQL of their claim keys, for JDBC.

    A claim key is text without commas by which a claim finds one message again: its key, or if
    no key is indexed its Due; in a plan, its place may follow its key. The query's columns: `slice`
    (the number, from 0), `claim_keys` and `sizes` (bytes of headers and body), the latter two lists
    separated by commas, oldest first, and `total`: how many claim keys all rows of the slice have
    together. A slice without claim keys also has a row. Without one, an empty slice would look like
    a read that broke off. Several rows of a slice are in the order of another column, `chunk`. A
    store that moves messages itself has a column more: `forwards`, as `Forwarded` has them, with
    `BETWEEN_FORWARDS` between them.

    A part of a plan has the same query; `begin` is the number of its first slice there. `read` are
    the rows of each slice, if they were read with the plan: their `total` counts all slices.
    """

    claim_keys_query: str
    planned: tuple[int, ...]
    begin: int = 0
    read: Sequence[Sequence[Any]] = field(default=(), repr=False)

    @property
    def found(self) -> int:
        """How many messages are eligible."""
        return sum(self.planned)

    def part(self, start: int, end: int) -> "Slices":
        """The slices from one to before another, counted from this plan's first."""
        return replace(self, planned=self.planned[start:end], begin=self.begin + start)


@dataclass(frozen=True, slots=True)
class JdbcSource:
    """The location and way by which Spark reads from the store's database; the properties hold the
    password.
    """

    url: str
    properties: dict[str, str]

    def __repr__(self) -> str:
        return f"JdbcSource({self.url!r})"


class JournalAge(NamedTuple):
    """How far the ledger was. `journal_id` is the journal's own id, which a copy of the database
    keeps. `settled` is the last sweep or command that the ledger got, by its end `settled_at`;
    None: not noted yet. `is_freed`: an operator has freed the source from its ledger. `place` is
    where the ledger was last.
    """

    journal_id: UUID
    settled: UUID | None
    settled_at: datetime | None
    is_freed: bool = False
    place: str | None = None


@dataclass(frozen=True, slots=True)
class Unsettled:
    """A sweep or command whose outcomes the ledger may not have yet. `command` None: a sweep."""

    sweep_id: UUID
    started_at: datetime
    is_closed: bool
    sealed_at: datetime | None
    command: CommandName | None


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many messages, bytes and sweeps a journal holds that the ledger has not got."""

    rows: int
    bytes: int
    sweeps: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """The messages that a sealed sweep exhausted or a `command` changed: messages from one id of
    the journal's to another, both included.
    """

    sweep_id: UUID
    command: bool
    first_id: int
    last_id: int
    rows: int


class DroppedSource(NamedTuple):
    """A source whose delayed table does not exist any more. `unsettled`: how many sweeps and
    commands of it the ledger may lack.
    """

    source: str
    delayed: str
    unsettled: int


class Failing(NamedTuple):
    """Due messages in back-off, and when the first of them is tried again."""

    messages: int
    next_attempt: datetime


class LockedRows(NamedTuple):
    """Due messages that another session has locked, or a prepared transaction. `holder` says which
    one, and `since` when its transaction began; None: the server does not tell. `due_seconds`: for
    how long the oldest of them has been due.
    """

    messages: int
    holder: str | None
    since: datetime | None
    due_seconds: float


# The keys of messages by their claim keys, where these are not keys.
LeftAlone = Mapping[str, Collection[str]]


class TaskSession(Protocol):
    """One task's session: the batch contract. Not thread-safe. Methods after `end_slice` have an
    answer that most stores leave as it is.

    `can_move`: it has the methods `move` and `finish_moved`, and its server can do it. A class that
    changes `claim` has to bring its own: it does not inherit them unawares.
    """

    can_move: bool = False

    def transaction(self) -> AbstractContextManager[None]:
        """The transaction in which a batch is claimed and finished; nested, a savepoint."""

    @abstractmethod
    def claim(self, run: SweepRun, claim_keys: Sequence[str]) -> Claim:
        """Lock the messages of the claim keys, at most one a claim key, if it is still
        there, due by the horizon and eligible; skip rows that others hold, wait for no row. Raises
        `SweepClosedError` when the sweep was closed by then, and `SweepStoppedError` when it is
        to stop (see `stop_sweep`). Without claim keys, that is all it does.

        A claim key of a store that finds messages by their Due may lead to another one of that Due.
        """

    def grant_exhausted(self, run: SweepRun, wanted: int, limit: int) -> int:
        """How many of `wanted` more messages the sweep may exhaust. Serialised per sweep: other
        slices wait until this transaction, in which `finish` counts them, has ended.
        """

    @abstractmethod
    def finish(self, run: SweepRun, slice_number: int, result: BatchResult, server_us: int) -> None:
        """Remove delivered messages, count failures, journal both, in the claim's transaction."""

    def end_slice(self, run: SweepRun, slice_number: int, end: SliceEnd) -> None:
        """Journal the end of a slice, its account and whether it is complete."""

    def claim_key(self, message: Message) -> str:
        """The claim key by which a claimed message that is released is found again."""
        return message.key

    def leave_alone(self, messages: LeftAlone) -> None:
        """Claim none of these, as the mapping has them at each claim. The caller changes it, after
        a COMMIT. If claim keys are keys, a claim key leads to no other message, so this
        does nothing.
        """
        return

    def reserve(self, limit: RateLimit, messages: int) -> float:
        """Reserve this many messages of a limit, after all earlier reservations of any
        sweep. Returns after how many seconds they may go. Not within a transaction: others wait for
        its end.
        """
        raise not_supported("[[limit]]")

    def move(
        self, run: SweepRun, groups: Sequence[Forwarded], into: Callable[[Address], Table]
    ) -> Moved:
        """Remove the messages that a claim would lock, and put them into their queues, in one
        transaction. `into` says which table an address means, and raises `UnusualBatchError` if it
        may not be one.

        Raises `UnusualBatchError` if it cannot move all that a claim might lock, if a message
        is not as usual, or if a queue refuses one. Then the transaction has to be rolled back.
        """
        raise UnusualBatchError("the store moves no messages")

    def finish_moved(self, run: SweepRun, slice_number: int, moved: Moved, server_us: int) -> None:
        """As `finish`, for messages that were moved."""
        raise UnusualBatchError("the store moves no messages")

    def expect_no_idle_client(self) -> None:
        """Let the server end a transaction whose client sends nothing for long, if it can. For a
        task whose batches wait for nothing else than this session.
        """
        return


class MessageSession(Protocol):
    """One message at a time, as in the MSMQ transport's `IDelayedMessageStore`; the batch contract
    does the same for many. It keeps no account. Not thread-safe. Within a `transaction`, fetching
    locks the message, and a failure restores removed rows.
    """

    def transaction(self) -> AbstractContextManager[None]:
        """The transaction of one message; nested, a savepoint."""

    def store(self, message: NewMessage) -> str:
        """Store a message until it is due; its key."""

    def fetch_next_due(self) -> Message | None:
        """Lock and return the eligible message that has been due for the longest, by the server's
        clock; or None. Skips rows that others hold.
        """

    def remove(self, message: Message) -> bool:
        """Remove a message that was fetched; False if it is gone already."""

    def raise_failure_count(self, message: Message) -> bool:
        """Count a failure for a message; False if it is gone already."""

    def next_due(self) -> datetime | None:
        """When the next message is or was due, in UTC; None if none is stored."""


class DriverSession(Protocol):
    """The driver's session: due messages, the life of its sweep, and the journal that settle reads.

    It holds the sweep's liveness lock: when the session ends, the sweep counts as dead. Methods
    after `backlog` have an answer that a store may leave as it is.
    """

    source: str

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    # Due messages, and the life of a sweep.

    def check(self) -> None:
        """Raise `ConfigError` unless tables, their shapes and this role's rights are as needed."""

    @abstractmethod
    def find_work(self, ahead: timedelta) -> Work | None:
        """Work that is unsettled, or due by `ahead` from now and eligible; or None. Cheap."""

    def horizon(self) -> Horizon:
        """The horizon now, by the transport's own predicate in its writers' time zone."""

    def open_sweep(self, horizon: Horizon, *, engine: str | None = None) -> SweepRun:
        """Open a sweep and drop counters of messages that are gone. `engine` is noted for the
        ledger.
        """

    @abstractmethod
    def plan(self, horizon: Horizon, slicing: Slicing) -> Slices:
        """Cut the eligible messages into slices of equal size. Changes nothing."""

    def note_slices(self, run: SweepRun, plan: Slices) -> int:
        """Note that the open sweep also has these slices, and the run's horizon. Returns how many
        slices it had before: its tasks count them on.
        """

    def claim_keys(self, plan: Slices, number: int) -> Iterable[Any]:
        """The rows of one slice of the plan, whichever session made it, read by this session."""

    def count_pending(self, horizon: Horizon, most: int | None = None) -> int:
        """How many messages are eligible; counts up to `most`, which is cheap."""

    def count_stored(self, since: datetime | None) -> int:
        """How many messages the store holds, whatever their Due; with `since`, only those stored
        with a Due after that.
        """

    def progress(self, sweep_id: UUID) -> tuple[int, int]:
        """Batches and messages done so far by an open sweep."""

    def stop_sweep(self, sweep_id: UUID, after_seconds: float) -> None:
        """Let an open sweep stop in this many seconds, by the server's clock. After that its
        tasks' `claim` and `move` raise `SweepStoppedError`; `finish` and `end_slice` do not. An
        earlier stop stays as it is. Does nothing to a closed sweep.
        """

    # The journal.

    def try_settling(self) -> bool:
        """Become the source's only settler, until `end_settling` or the session's end. Never waits:
        False if another session is.
        """

    def end_settling(self) -> None:
        """Let others settle."""

    def settler(self) -> str:
        """Which process settles the source, and since when, as a sentence's beginning: "Process 7
        on web1, whose session has been idle since 12:03:04 UTC,".
        """

    def unsettled(self) -> Sequence[Unsettled]:
        """The source's sweeps and commands that are not settled, the oldest first. Cheap."""

    def still_alive(self, sweep_id: UUID) -> bool:
        """Whether another session lives for the sweep or command: its driver's, or its
        settler's. If none does, and this session is the settler, only it may settle the sweep
        until it is no more.
        """

    def keep_sweep(self, sweep_id: UUID) -> bool:
        """Let a sweep live by this session, since its own was lost; False: another one has it."""

    def close_sweep(
        self,
        sweep_id: UUID,
        *,
        abandoned: bool,
        remaining: int | Callable[[], int],
        reason: str | None = None,
        waits: bool = True,
    ) -> bool:
        """Close a sweep once its batches in flight have ended; False when it was closed already.
        Unless it `waits`, False also while batches are in flight.
        `remaining` messages or more are still due; a function is called when the batches have
        ended, and need not be called if all slices are complete.
        `reason`: why its dispatch was cut short; None if it was not.
        """

    def seal(self, sweep_id: UUID) -> None:
        """Note when a closed sweep was first settled."""

    def summary(self, sweep_id: UUID) -> tuple[SweepSummary, bool]:
        """The sweep's row for `sweeps`, and whether the retry counters changed."""

    def batches(self, sweep_id: UUID) -> Iterator[Sequence[bytes]]:
        """The deliveries of a sealed sweep, an Arrow IPC stream a batch
        (`duesweep.stores.tombstone`), in pieces bounded in memory; always the same pieces.
        """

    def pieces(self, sweep_id: UUID, *, command: bool) -> Sequence[Piece]:
        """The messages that a sealed sweep exhausted, or a sealed command changed, in bounded
        pieces; always the same pieces.
        """

    def piece_rows(self, piece: Piece) -> Sequence[Any]:
        """The messages of a piece. They have the columns of the ledger's `tombstones` and `errors`
        that are not the same in all rows or, of a command, the columns of `changes` but `source`,
        and `attempts`; headers are text, instants microseconds.
        """

    def retries_rows(self, most: int) -> Iterator[Sequence[Any]]:
        """The source's retry counters, at most `most` at a time, with the columns of the ledger's
        `retries` but `source`; instants are microseconds.
        """

    def delete_settled(self, sweep_id: UUID) -> None:
        """Forget a sweep that the ledger has."""

    def binding(self) -> UUID | None:
        """The ledger that the source is bound to. Raises `ConfigError` if another store
        has the source's name.
        """

    def bind(self, ledger_id: UUID) -> None:
        """Bind the source to a ledger for good. A source that is bound already stays as it is."""

    def backlog(self) -> Backlog:
        """How much the journal holds of the source. Cheap."""

    # Answers that a store may leave as they are.

    def age(self) -> "JournalAge | None":
        """How far the ledger was when the journal forgot a sweep last. None: it is not kept."""
        return None

    def keep_place(self, place: str) -> None:
        """Note where the source's ledger is, for the day on which it is not there."""
        return

    def name_journal(self) -> None:
        """Give the journal its id, unless it has one. Only if it keeps an age."""
        raise not_supported("The id of a journal")

    def plan_at_once(self, horizon: Horizon, slicing: Slicing, most: int) -> Slices | None:
        """A plan of at most `most` messages; None: more are eligible. A store may read the claim
        keys with it; the slices may then differ somewhat in size.
        """
        if self.count_pending(horizon, most + 1) > most:
            return None
        return self.plan(horizon, slicing)

    def jdbc(self) -> JdbcSource:
        """How Spark reaches the store's database."""
        raise not_supported("a sweep on Spark")

    def notices(self) -> Sequence[Problem]:
        """Problems that a person should look at, although sweeps work. Cheap."""
        return ()

    def table_notices(self) -> Sequence[Problem]:
        """Faults of its tables although sweeps work. The doctor finds them itself."""
        return ()

    def next_due(self, horizon: Horizon) -> datetime | None:
        """The instant, in UTC, at which the first message comes due that is not due by `horizon`,
        if an index finds it; None without one, or if the store cannot tell.
        """
        return None

    def failing(self, horizon: Horizon) -> Failing | None:
        """The due messages in back-off. Called after `next_due`; None: no message is."""
        return None

    def locked(self, horizon: Horizon) -> Sequence[LockedRows]:
        """The due messages that others have locked, by holder, the most first."""
        return ()

    def destinations(self, horizon: Horizon | None) -> Sequence[str]:
        """The destinations of eligible messages: a bounded number, the commonest first, without the
        empty ones. Cheap: the longest due ones are enough. `horizon` None: of all stored
        messages, whatever their Due. No answer, if the store would have to look into messages.
        """
        return ()

    def plan_sql(self, horizon: Horizon) -> str | None:
        """The query by which a sweep in one slice would read its claim keys, if there is one."""
        return None

    def pauses(self) -> Sequence[Pause]:
        """The pauses in force, by the server's clock."""
        return ()

    def command(self, sweep_id: UUID) -> UnsettledCommand | None:
        """The operator's command; None: it is a sweep."""
        return None


class Store(Protocol):
    """A place where delayed messages wait. A value: plain, frozen, picklable; no secrets in its
    repr.

    `source` is the stable name under which ledger and journal know the store, `own_queue` the
    address of the endpoint's own input queue.
    """

    source: str
    own_queue: str

    def initialise(self, endpoint: str, mode: TransactionMode) -> None:
        """Be ready to serve an endpoint; called before anything but `set_up_infrastructure`.

        Raises `ConfigError` for a mode that the store cannot honour.
        """

    def open_task(self) -> AbstractContextManager[TaskSession]:
        """A session for one slice."""

    def open_driver(self) -> DriverSession:
        """A session for the driver."""

    def open_messages(self) -> AbstractContextManager[MessageSession]:
        """A session for one message at a time."""

    def set_up_infrastructure(self) -> None:
        """Create missing parts of the store, such as tables; part of the command `setup`. A
        class that leaves this out expects it to exist already.
        """
        return

    def operators(self) -> "Operators | None":
        """The store's operations for people; None: it only sweeps."""
        return None


class OperatorDriver(DriverSession, Protocol):
    """A driver's session for people: it shows and pauses, keeps commands in the journal as it keeps
    sweeps, and is compared with the ledger. It locks nothing that a mover or a sweep would wait
    for, and waits for no lock of others. Dues are instants.
    """

    def check_sight(self) -> None:
        """Raise `ConfigError` if the server hides rows from this user. Needs no rights."""
        return

    def check_reading(self) -> None:
        """Raise `ConfigError` unless tables, their shapes and this user's rights are as someone
        needs them who reads only.
        """
        self.check()

    def look(self, span: DueSpan) -> AbstractContextManager[Iterator[Sequence[WaitingMessage]]]:
        """The messages that are due in the span, the earliest Due first, in pages; the
        first page comes quickly, however many wait. Without bodies.
        """

    def find(self, keys: Sequence[str], *, with_body: bool = False) -> Sequence[WaitingMessage]:
        """The messages with these keys that are stored. May read the whole table if no key is
        indexed. Texts that cannot be keys lead to none.
        """

    def count_waiting(self, ends: Sequence[datetime]) -> Sequence[int]:
        """How many messages are due before the first instant, from the first to before the second,
        and so on, and from the last on: one number more than `ends`.
        """

    def pause(self, pattern: str, until: datetime | None, given_by: str, reason: str) -> None:
        """Let nothing go to the destinations that fit `pattern`, until an instant; None: until they
        are resumed. Changes a pause of the same pattern. Batches under way are not stopped.
        """

    def resume(self, pattern: str) -> bool:
        """End the pause of just this pattern; False without one."""

    def open_command(self, command: Command) -> SweepRun:
        """Open a command. The horizon of its run says the server's time and the writers' zone."""

    def undoing(self) -> AbstractContextManager[None]:
        """Be the source's only command that `undoes`; waits a short time for another one to end.
        Raises `StoreError` if it does not end.
        """

    # The facts that `audit` compares with the ledger. Messages that others change may be missing,
    # or be there still.

    def keys(self) -> AbstractContextManager[Iterator[Sequence[str]]]:
        """The keys of all stored messages, in pages; no order is promised."""

    def gone_counters(self, most: int) -> Sequence[str]:
        """The keys of retry counters whose messages are not stored, up to `most`."""

    def orphaned_journal(self) -> Sequence[UUID]:
        """Sweeps and commands, of any source, of which the journal has rows that no settler takes,
        because their own row is gone.
        """

    # Rows that duesweep keeps of all sources next to a store.

    def dropped(self) -> Sequence[DroppedSource]:
        """The sources whose endpoints are gone."""

    def forget(self, source: str) -> int:
        """Delete a source's counters, pauses, limits and binding; how many rows."""


class OperatorTask(TaskSession, Protocol):
    """A task's session that carries out an operator's command. Each method but `hold` is a part of
    the transaction that `hold` began, and journals its changes in it.
    """

    def hold(self, run: SweepRun, lock_keys: Sequence[str]) -> Claim:
        """Lock the messages that are still there, whatever their Due and back-off; skip rows that
        others hold, wait for no row. `Claim.later` and `.unread` are empty. Raises
        `SweepClosedError` when the command was closed by then. Without keys it only does that, and
        returns the pauses.
        """

    def cancel(self, run: SweepRun, messages: Sequence[Message], server_us: int) -> None:
        """Remove messages that are held, with their retry counters. Headers and bodies are
        journalled as they were stored.
        """

    def reschedule(
        self, run: SweepRun, messages: Sequence[tuple[Message, datetime]], server_us: int
    ) -> None:
        """Give messages that are held a new Due, an instant. They keep their keys and their retry
        counters; a message in back-off may be tried at its new Due.
        """

    def put_back(
        self, run: SweepRun, messages: Sequence[tuple[Change, NewMessage]], server_us: int
    ) -> Sequence[str]:
        """Store messages again, and journal the changes with their new keys, which it returns, and
        with the Dues that were stored.
        """

    def journal_changes(self, run: SweepRun, changes: Sequence[Change], server_us: int) -> None:
        """Journal the outcomes of messages that are not in the store."""


class Operators(Protocol):
    """A store's operations for people, all or none: it shows waiting messages, pauses destinations,
    changes messages, and can be audited and maintained.
    """

    def open_driver(self) -> AbstractContextManager[OperatorDriver]:
        """A driver's session for people."""

    def open_changes(self) -> AbstractContextManager[OperatorTask]:
        """A session for one command."""


def operators_of(store: Store, wanted: str) -> Operators:
    """The store's operations for people. Raises `ConfigError` without them; `wanted` names in a
    few words the wanted one.
    """
    operators = store.operators()
    if operators is None:
        raise not_supported(f"{store.source}: {wanted}")
    return operators


def not_supported(wanted: str) -> ConfigError:
    """The error of a store that leaves the contract's answer as it is."""
    return ConfigError(
        f"{wanted} is not supported by this store",
        advice="its class can add it (docs/stores.md)",
    )


def refuse_distributed(source: str, mode: TransactionMode) -> None:
    """Raise `ConfigError` for a mode that takes a transaction across servers."""
    if mode == TransactionMode.TRANSACTION_SCOPE:
        raise ConfigError(
            f"store.transaction_mode is {mode.value}, which takes a distributed transaction, and "
            f"{source} cannot enlist in one",
            advice=f"leave the setting out, or set {TransactionMode.RECEIVE_ONLY.value}",
        )
