"""Kinds of delayed table."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedShape:
    """A kind of delayed table: its columns and their types, which of them is Due, and what
    statements call them (`names`, in braces).

    `create` is the statement that makes such a table; None: somebody else does. `settings` are
    those that say which table it is.
    """

    columns: dict[str, str]
    due: str
    names: dict[str, str]
    create: str | None = "create_delayed"
    settings: str = "store.endpoint, store.schema and store.delayed_table"

    @property
    def advice(self) -> str:
        """What to do where there is no such table."""
        if self.create is None:
            return f"check {self.settings}; `setup` does not create it"
        return f"check {self.settings}, or create it with the command `setup`"
