"""Changes of a store by the command `setup`, except new tables."""

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Unbound:
    """A source that `setup --rebind` freed; `ledger_id` None: it was bound to no ledger."""

    source: str
    ledger_id: UUID | None

    def __str__(self) -> str:
        if self.ledger_id is None:
            return (
                f"The journal of {self.source} was bound to no ledger; the next sweep binds it to "
                "the one at ledger.root"
            )
        return (
            f"The journal of {self.source} is freed from ledger {self.ledger_id}; the next sweep "
            "binds it to the ledger at ledger.root, and creates missing tables there"
        )


@dataclass(frozen=True, slots=True)
class Completed:
    """A table that was there, to which `setup` added the columns that it lacked."""

    table: object

    def __str__(self) -> str:
        return f"added the columns that {self.table} lacked"


@dataclass(frozen=True, slots=True)
class IndexCreated:
    """An index that a delayed table lacked."""

    index: str
    table: object

    def __str__(self) -> str:
        return f"created index {self.index} on {self.table}"
