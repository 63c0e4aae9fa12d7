"""The contract of due messages: whether there is work, its plan, and messages held back."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from duesweep.core.errors import not_supported
from duesweep.core.policy import Pause, Slicing


@dataclass(frozen=True, slots=True)
class Horizon:
    """The limit of due messages: everything stored with a Due before `before`.

    `server_time` is the server's clock at that moment. The two differ where the writers' time zone
    is not UTC (docs/decisions/plan.md), and by how far a sweep looks `ahead`. The sweep leaves
    messages with a Due before `since` to others; None: it leaves nothing. `is_cut_off`: they are
    never wanted. `zone` is the one whose clock stored Dues show, as PostgreSQL calls it.
    """

    before: datetime
    server_time: datetime
    ahead: timedelta = timedelta()
    since: datetime | None = None
    is_cut_off: bool = False
    zone: str = "UTC"

    def looking_ahead(self, ahead: timedelta) -> "Horizon":
        """The horizon of a sweep that looks so far ahead, asked for at the same moment."""
        return replace(self, before=self.before + ahead, ahead=self.ahead + ahead)

    def cut_off(self, cutoff: datetime) -> "Horizon":
        """The same horizon without messages due before an instant."""
        since = cutoff + timedelta(microseconds=self.shift_us)
        return replace(self, since=since, is_cut_off=True)

    @property
    def again(self) -> "Horizon":
        """The same horizon for another plan: earlier messages may have become eligible since the
        look, but none before a cutoff is wanted.
        """
        return self if self.is_cut_off else replace(self, since=None)

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
    tell. `only_settles`: there is no message to deliver, and no counter to drop.
    """

    since: datetime | None = None
    only_settles: bool = False


@dataclass(frozen=True, slots=True)
class Slices:
    """A plan: how many messages each slice has, and the SQL of their claim keys, for JDBC.

    A claim key is text without commas by which a claim finds one message again: its key, or if
    no key is indexed its Due; in a plan, its place may follow its key. The query's columns: `slice`
    (the number, from 0), `claim_keys` and `sizes` (bytes of headers and body), the latter two lists
    separated by commas, oldest first, and `total`: how many claim keys all rows of the slice have
    together. A slice without claim keys also has a row. Without one, an empty slice would look like
    a read that broke off. Several rows of a slice are in the order of another column, `chunk`. If
    each claim key leads to one message, a column more may have their destinations: `forwards`, as
    `Forwarded` has them, with `BETWEEN_FORWARDS` between them.

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


class Failing(NamedTuple):
    """Due messages in back-off, and when the first of them is tried again."""

    messages: int
    next_attempt: datetime


class Upcoming(NamedTuple):
    """`due`: the instant, in UTC, at which the first message comes due that is not due yet; None:
    no message will, no index finds it, or the store cannot tell. `failing` are the due messages in
    back-off; None: no message is, or the horizon leaves earlier messages to others.
    """

    due: datetime | None = None
    failing: Failing | None = None


class LockedRows(NamedTuple):
    """Due messages that another session has locked, or a prepared transaction. `holder` says which
    one, and `since` when its transaction began; None: the server does not tell. `due_seconds`: for
    how long the oldest of them has been due.
    """

    messages: int
    holder: str | None
    since: datetime | None
    due_seconds: float


class Due(Protocol):
    """The due messages, as a driver's session sees them. Changes nothing, and locks no message.

    Methods after `count_stored` have an answer that a store may leave as it is.
    """

    @abstractmethod
    def find_work(self, horizon: Horizon) -> Work | None:
        """Work that is unsettled, or due by `horizon`, not before its `since`, and eligible; or
        None. Cheap.
        """

    def horizon(self) -> Horizon:
        """The horizon now, by the transport's own predicate in its writers' time zone."""

    @abstractmethod
    def plan(self, horizon: Horizon, slicing: Slicing) -> Slices:
        """Cut the eligible messages into slices of equal size. Changes nothing."""

    def claim_keys(self, plan: Slices, number: int) -> Iterable[Any]:
        """The rows of one slice of the plan, whichever session made it, read by this session."""

    def count_pending(self, horizon: Horizon, most: int | None = None) -> int:
        """How many messages are eligible; counts up to `most`, which is cheap."""

    def count_stored(self, since: datetime | None) -> int:
        """How many messages the store holds, whatever their Due; with `since`, only those stored
        with a Due after that.
        """

    def plan_at_once(self, horizon: Horizon, slicing: Slicing, most: int) -> Slices | None:
        """A plan of at most `most` messages; None: more are eligible. A store may read the claim
        keys with it; the slices may then differ somewhat in size.
        """
        if self.count_pending(horizon, most + 1) > most:
            return None
        return self.plan(horizon, slicing)

    def jdbc(self, messages: int = 0) -> JdbcSource:
        """How Spark reaches the store's database, to read a plan of this many messages."""
        raise not_supported("a sweep on Spark")

    def next_due(self, horizon: Horizon) -> Upcoming:
        """The next message that is not due by `horizon`, and the due ones in back-off: they say
        when there is work again. Cheap.
        """
        return Upcoming()

    def locked(self, horizon: Horizon) -> Sequence[LockedRows]:
        """The due messages that others have locked, by holder, the most first."""
        return ()

    def destinations(self, horizon: Horizon | None) -> Sequence[str]:
        """The destinations of eligible messages: a bounded number, the commonest first, without the
        empty ones. Cheap: the longest due ones are enough. `horizon` None: of all stored
        messages, whatever their Due. No answer, if the store would have to look into messages.
        """
        return ()

    def pauses(self) -> Sequence[Pause]:
        """The pauses in force, by the server's clock."""
        return ()
