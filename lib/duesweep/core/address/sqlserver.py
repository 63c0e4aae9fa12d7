"""Addresses of the SQL Server transport, and the tables that they name.

The grammar is that of the transport's `QueueAddress.Parse`: `table@schema@catalog`. The table ends
at the first `@` and is never quoted. Schema and catalog may be in brackets, with `]` doubled
inside; only in brackets may they hold an `@`. Blank ones mean the endpoint's own.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from duesweep.core.address.characters import refuse_unstorable
from duesweep.core.errors import UnreadableAddressError

_LONGEST_NAME = 128


@dataclass(frozen=True, slots=True)
class SqlServerTable:
    """A table, its schema and its database, unquoted."""

    catalog: str
    schema: str
    table: str

    def __str__(self) -> str:
        """The address in its canonical form, as NServiceBus writes it."""
        return f"{self.table}@{bracket_name(self.schema)}@{bracket_name(self.catalog)}"

    @property
    def sql(self) -> str:
        """The three-part name for a T-SQL statement."""
        return ".".join(map(bracket_name, (self.catalog, self.schema, self.table)))


def bracket_name(name: str) -> str:
    """`name` as a T-SQL identifier in brackets."""
    return "[" + name.replace("]", "]]") + "]"


@dataclass(frozen=True, slots=True)
class SqlServerAddresses:
    """How an endpoint on SQL Server reads addresses. Where an address has no schema or no catalog,
    `default_schema` and `default_catalog` apply.
    """

    endpoint: str
    default_schema: str
    default_catalog: str

    @property
    def own_queue(self) -> SqlServerTable:
        """The endpoint's own input queue."""
        return SqlServerTable(self.default_catalog, self.default_schema, self.endpoint)

    def parse(self, address: str | None) -> SqlServerTable:
        """The table that `address` names; None is the endpoint's own queue.

        Raises `UnreadableAddressError` for an address that can name no table.
        """
        if address is None or address == self.endpoint:
            return self.own_queue
        refuse_unstorable(address)
        table, _, rest = address.partition("@")
        if not table.strip():
            raise UnreadableAddressError(f"The destination {address!r} names no table")
        schema, rest = _next_part(rest)
        catalog, _ = _next_part(rest)
        _refuse_long_names(address, (table, schema, catalog))
        return SqlServerTable(catalog or self.default_catalog, schema or self.default_schema, table)


def _refuse_long_names(address: str, names: Iterable[str]) -> None:
    for name in names:
        # SQL Server counts a character beyond U+FFFF as two.
        length = len(name.encode("utf-16-le")) // 2
        if length > _LONGEST_NAME:
            raise UnreadableAddressError(
                f"The destination {address!r} holds a name of {length:,} characters, and names in "
                f"SQL Server have {_LONGEST_NAME} at most"
            )


def _next_part(text: str) -> tuple[str, str]:
    """The first part of `text`, without its brackets ("" if blank), and the rest."""
    bracketed_part = text.startswith("[")
    in_brackets = bracketed_part
    # The transport looks for an `@` from the second character on: `t@@c` is table t in schema @c.
    for index in range(1, len(text)):
        if text[index] == "]":
            in_brackets = bracketed_part and not in_brackets
        elif text[index] == "@" and not in_brackets:
            return _unbracket(text[:index]), text[index + 1 :]
    return _unbracket(text), ""


def _unbracket(name: str) -> str:
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1].replace("]]", "]")
    return name if name.strip() else ""
