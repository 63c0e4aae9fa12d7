"""The contracts for operators' commands: what people see, hold back, clean up and change."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

from duesweep.core.change import Change, DueSpan, WaitingMessage
from duesweep.core.message import Message
from duesweep.stores.due import Horizon
from duesweep.stores.messages import NewMessage
from duesweep.stores.sweeps import SweepRun
from duesweep.stores.task import Claim


class DroppedSource(NamedTuple):
    """A source whose delayed table does not exist any more. `unsettled`: how many sweeps and
    commands of it the ledger may lack.
    """

    source: str
    delayed: str
    unsettled: int


class People(Protocol):
    """What people see, and hold back; and rows next to a store whose message, sweep or endpoint is
    gone, which `audit` reports and `maintain` removes. It locks nothing that a mover or a sweep
    would wait for, and waits for no lock of others. Messages that others change may be missing, or
    be there still. Dues are instants.
    """

    source: str

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

    def keys(self) -> AbstractContextManager[Iterator[Sequence[str]]]:
        """The keys of all stored messages, in pages; no order is promised."""

    def plan_sql(self, horizon: Horizon) -> str | None:
        """The query by which a sweep in one slice would read its claim keys, if there is one."""
        return None

    def gone_counters(self, most: int) -> Sequence[str]:
        """The keys of retry counters whose messages are not stored, up to `most`."""

    def orphaned_journal(self) -> Sequence[UUID]:
        """Sweeps and commands, of any source, of which the journal has rows that no settler takes,
        because their own row is gone.
        """

    def dropped(self) -> Sequence[DroppedSource]:
        """The sources whose endpoints are gone."""

    def forget(self, source: str) -> int:
        """Delete a source's counters, pauses, limits and binding; how many rows."""


class OperatorTask(Protocol):
    """A session that carries out an operator's command. Each method but `hold` is a part of
    the transaction that `hold` began, and journals its changes in it.
    """

    def transaction(self) -> AbstractContextManager[None]:
        """The transaction in which messages are held and changed."""

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
