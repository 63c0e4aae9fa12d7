"""What a store may do for operators: show what waits, and change it.

A store that lacks these abilities still sweeps; the commands then say that it does not support
them. Nothing here waits for a lock of others.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol, TypeVar, runtime_checkable
from uuid import UUID

from duesweep.core.change import Change, Command, UnsettledCommand
from duesweep.core.message import Message
from duesweep.core.pauses import Pause
from duesweep.core.policy import RateLimit
from duesweep.core.waiting import DueSpan, WaitingMessage
from duesweep.errors import ConfigError
from duesweep.stores.base import DriverSession, TaskSession
from duesweep.stores.journal import ExhaustedPiece, Journal
from duesweep.stores.values import Claim, NewMessage, SweepRun


@runtime_checkable
class LooksAtMessages(Protocol):
    """A driver's session that shows what is stored. It locks nothing that a mover or a sweep would
    wait for. Dues are instants.
    """

    def look(self, span: DueSpan) -> AbstractContextManager[Iterator[Sequence[WaitingMessage]]]:
        """The messages that are due in the span, those with the earliest Due first, in pages; the
        first page comes quickly, however many wait. Without bodies.
        """
        ...

    def find(self, keys: Sequence[str], *, with_body: bool = False) -> Sequence[WaitingMessage]:
        """The messages with these keys that are stored. May read the whole table where no key is
        indexed. Texts that cannot be keys lead to none.
        """
        ...

    def count_waiting(self, ends: Sequence[datetime]) -> Sequence[int]:
        """How many messages are due before the first instant, from the first to before the second,
        and so on, and from the last on: one number more than `ends`.
        """
        ...


@runtime_checkable
class CommandJournal(Journal, Protocol):
    """The part of such a session that settle uses."""

    def command(self, sweep_id: UUID) -> UnsettledCommand | None:
        """What the command is; None: it is a sweep."""
        ...

    def changes(self, sweep_id: UUID) -> Sequence[ExhaustedPiece]:
        """What a sealed command changed, in pieces bounded in memory; always the same pieces."""
        ...

    def changes_rows(self, sweep_id: UUID, piece: ExhaustedPiece) -> Sequence[Any]:
        """The changes of a piece, with the columns of the ledger's `changes` but `source`, and
        `attempts`; headers are text, instants microseconds.
        """
        ...


@runtime_checkable
class KeepsCommands(CommandJournal, Protocol):
    """A driver's session that keeps an operator's commands in the journal, as it keeps sweeps: it
    opens, closes and settles both in the same way, and `dead_sweeps` has both.
    """

    def open_command(self, command: Command) -> SweepRun:
        """Open a command. The horizon of its run says the server's time and the writers' zone."""
        ...

    def undoing(self) -> AbstractContextManager[None]:
        """Be the source's only command that `undoes`; waits a short time for another one to end.
        Raises `StoreError` if it does not end.
        """
        ...

    def undoing_commands(self) -> Sequence[UUID]:
        """The commands of the source that `undoes` and are not settled."""
        ...


@runtime_checkable
class ChangesMessages(TaskSession, Protocol):
    """A task's session that carries out an operator's command. Each method but `hold` is a part of
    the transaction that `hold` began, and journals what it does in it.
    """

    def hold(self, run: SweepRun, lock_keys: Sequence[str]) -> Claim:
        """Lock the messages that are still there, whatever their Due and back-off; skip what others
        hold, wait for no row. `Claim.later` and `.unread` are empty. Raises `SweepClosedError` when
        the command was closed meanwhile. Without keys it only does that, and tells what is paused.
        """
        ...

    def cancel(self, run: SweepRun, messages: Sequence[Message], server_us: int) -> None:
        """Remove messages that are held, with their retry counters. Headers and bodies are
        journalled as they were stored.
        """
        ...

    def reschedule(
        self, run: SweepRun, messages: Sequence[tuple[Message, datetime]], server_us: int
    ) -> None:
        """Give messages that are held a new Due, an instant. They keep their keys and their retry
        counters; a message in back-off may be tried at its new Due.
        """
        ...

    def put_back(
        self, run: SweepRun, messages: Sequence[tuple[Change, NewMessage]], server_us: int
    ) -> Sequence[str]:
        """Store messages again, and journal the changes with their new keys, which it returns, and
        with the Dues that were stored.
        """
        ...

    def journal_changes(self, run: SweepRun, changes: Sequence[Change], server_us: int) -> None:
        """Journal what became of messages that are not in the store."""
        ...


@runtime_checkable
class OpensChanges(Protocol):
    """A store whose messages an operator can change."""

    def open_changes(self) -> AbstractContextManager[ChangesMessages]:
        """A session for one command."""
        ...


@runtime_checkable
class PausesDestinations(Protocol):
    """A driver's session whose store keeps pauses beside its messages, so that every sweep obeys
    them: its tasks' claims say what is paused (`Claim.paused`).
    """

    def pause(self, pattern: str, until: datetime | None, given_by: str, reason: str) -> None:
        """Let nothing go to the destinations that fit `pattern`, until an instant; None: until they
        are resumed. Changes a pause of the same pattern. Batches under way are not stopped.
        """
        ...

    def resume(self, pattern: str) -> bool:
        """End the pause of just this pattern; False if there is none."""
        ...

    def pauses(self) -> Sequence[Pause]:
        """The pauses in force, by the server's clock."""
        ...


@runtime_checkable
class LimitsRates(Protocol):
    """A task's session whose store counts what all sweeps reserve."""

    def reserve(self, limit: RateLimit, messages: int) -> float:
        """Reserve so many messages of a limit, after all that is reserved already. Returns after
        how many seconds they may go. Not within a transaction: others wait for its end.
        """
        ...


def pauses_of(session: DriverSession) -> Sequence[Pause]:
    """The pauses in force; none where the store keeps none."""
    return session.pauses() if isinstance(session, PausesDestinations) else ()


_Ability = TypeVar("_Ability")


def require(subject: object, ability: type[_Ability], command: str, source: str) -> _Ability:
    """`subject`, a store or a session, as one that has an ability. Raises `ConfigError` if it has
    not.
    """
    if not isinstance(subject, ability):
        raise ConfigError(
            f"The command `{command}` is not supported by the store of {source}",
            advice=f"see docs/stores.md (`{ability.__name__}`)",
        )
    return subject
