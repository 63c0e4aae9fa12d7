"""The contract of a source's binding: to which ledger it belongs, and how far that was."""

from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

from duesweep.core.errors import not_supported


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


class Bound(NamedTuple):
    """The `ledger` that a source is bound to; None: none yet. `age` None: the store keeps none."""

    ledger: UUID | None
    age: JournalAge | None = None


class SourceBinding(Protocol):
    """A source and its ledger. Methods after `bind` have an answer that a store may leave."""

    source: str

    def read(self) -> Bound:
        """The ledger of the source, and how far that was when the journal forgot a sweep last.
        Raises `ConfigError` if another store has the source's name.
        """

    def bind(self, ledger_id: UUID) -> None:
        """Bind the source to a ledger for good. A source that is bound already stays as it is."""

    def keep_place(self, place: str) -> None:
        """Note where the source's ledger is, for the day on which it is not there."""
        return

    def name_journal(self) -> None:
        """Give the journal its id, unless it has one. Only if it keeps an age."""
        raise not_supported("The id of a journal")
