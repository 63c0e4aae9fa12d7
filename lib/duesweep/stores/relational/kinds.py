"""Kinds of delayed table: what tells one from another, as values."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TableKind:
    """A kind of delayed table.

    `columns` are its columns and their types, `due` is the one of them with the Due, and `names`
    are what statements call them (in braces). `create` is the statement that makes such a table;
    None: somebody else does. `settings` are those that say which table it is.

    The rest is where a kind may differ from the transport's table: Due may be NULL
    (`may_lack_due`), the destination may be a column (`has_destination`), and the endpoint's own
    queue may not be a table beside it (`has_own_queue`).
    """

    columns: dict[str, str]
    due: str
    names: dict[str, str]
    create: str | None = "create_delayed"
    settings: str = "store.endpoint, store.schema and store.delayed_table"
    may_lack_due: bool = False
    has_destination: bool = False
    has_own_queue: bool = True

    @property
    def advice(self) -> str:
        """What to do where there is no such table."""
        if self.create is None:
            return f"check {self.settings}; `setup` does not create it"
        return f"check {self.settings}, or create it with the command `setup`"
