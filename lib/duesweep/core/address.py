"""Transport addresses, and the queues or tables that they name. Two grammars, each the
grammar of the transport's own parser; no address has a NUL or half of a surrogate pair.

- PostgreSQL (`QueueAddress.Parse`): the schema ends at the first dot outside quotes. Each part may
  be quoted, with quotes doubled inside. Names are case-sensitive.
- SQL Server (`QueueAddress.Parse`): `table@schema@catalog`. The table ends at the first `@` and is
  never quoted. Schema and catalog may be in brackets, with `]` doubled inside; only in brackets may
  they hold an `@`. Blank ones mean the endpoint's own.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from duesweep.core.errors import UnreadableAddressError

_SURROGATES = re.compile("[\ud800-\udfff]")
# PostgreSQL cuts off the rest, and means another table. SQL Server refuses the statement.
_LONGEST_BYTES, _LONGEST_CHARACTERS = 63, 128


def _refuse_unstorable(address: str) -> None:
    """Raise `UnreadableAddressError` for an address with a NUL or half of a surrogate pair, which
    databases and brokers do not take in a name.
    """
    if "\0" in address:
        raise UnreadableAddressError(f"The destination {address!r} holds a NUL")
    if _SURROGATES.search(address):
        raise UnreadableAddressError(f"The destination {address!r} holds half of a surrogate pair")


def _refuse_long(name: str) -> None:
    """Raise `UnreadableAddressError` for a name that PostgreSQL would cut. A database in another
    encoding than UTF-8 may have room for a longer one.
    """
    length = len(name.encode())
    if length > _LONGEST_BYTES:
        raise UnreadableAddressError(
            f"The name {name!r} has {length:,} bytes, and names in PostgreSQL have "
            f"{_LONGEST_BYTES} at most"
        )


@dataclass(frozen=True, slots=True)
class TableName:
    """A table and its schema, unquoted. Raises `UnreadableAddressError` for names that are too
    long.
    """

    schema: str
    table: str

    def __post_init__(self) -> None:
        _refuse_long(self.schema)
        _refuse_long(self.table)

    def __str__(self) -> str:
        """The address in its canonical form, as NServiceBus writes it."""
        return f"{quote_name(self.schema)}.{quote_name(self.table)}"

    @property
    def sql(self) -> str:
        """The name for a statement, which is the address."""
        return str(self)


def quote_name(name: str) -> str:
    """`name` as a quoted PostgreSQL identifier; `UnreadableAddressError` if it is too long."""
    _refuse_long(name)
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class PostgreSqlAddresses:
    """How an endpoint on PostgreSQL reads addresses. Its own name is one identifier, even with
    dots. A name without a schema is in `default_schema`.
    """

    endpoint: str
    default_schema: str

    def __post_init__(self) -> None:
        _ = self.own_queue

    @property
    def own_queue(self) -> TableName:
        return TableName(self.default_schema, self.endpoint)

    def parse(self, address: str | None) -> TableName:
        """The table that `address` names; None is the endpoint's own queue.

        Raises `UnreadableAddressError` for an address that can name no table.
        """
        if address is None or address == self.endpoint:
            return self.own_queue
        _refuse_unstorable(address)
        schema, table = _split(address)
        if not table.strip():
            raise UnreadableAddressError(f"The destination {address!r} names no table")
        return TableName(schema if schema.strip() else self.default_schema, table)

    def in_full(self, name: str) -> Sequence[str]:
        """Other addresses that mean the queue of this name, in quotes and with its schema."""
        if "@" in name:
            return ()
        return quote_name(name), str(TableName(self.default_schema, name))


def _split(address: str) -> tuple[str, str]:
    in_quotes = False
    for index, character in enumerate(address):
        if character == '"':
            in_quotes = not in_quotes
        elif character == "." and not in_quotes:
            return _unquote(address[:index]), _unquote(address[index + 1 :])
    return "", _unquote(address)


def _unquote(name: str) -> str:
    if len(name) >= len('""') and name.startswith('"') and name.endswith('"'):
        return name[1:-1].replace('""', '"')
    return name


@dataclass(frozen=True, slots=True)
class SqlServerTable:
    """A table, its schema and its database, unquoted. Raises `UnreadableAddressError` for names
    that are too long.
    """

    catalog: str
    schema: str
    table: str

    def __post_init__(self) -> None:
        for name in (self.catalog, self.schema, self.table):
            # SQL Server counts a character beyond U+FFFF as two.
            length = len(name.encode("utf-16-le", "surrogatepass")) // 2
            if length > _LONGEST_CHARACTERS:
                raise UnreadableAddressError(
                    f"The name {name!r} has {length:,} characters, and names in SQL Server have "
                    f"{_LONGEST_CHARACTERS} at most"
                )

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
    """How an endpoint on SQL Server reads addresses. If an address has no schema or no catalog,
    `default_schema` and `default_catalog` apply.
    """

    endpoint: str
    default_schema: str
    default_catalog: str

    def __post_init__(self) -> None:
        _ = self.own_queue

    @property
    def own_queue(self) -> SqlServerTable:
        return SqlServerTable(self.default_catalog, self.default_schema, self.endpoint)

    def parse(self, address: str | None) -> SqlServerTable:
        """The table that `address` names; None is the endpoint's own queue.

        Raises `UnreadableAddressError` for an address that can name no table.
        """
        if address is None or address == self.endpoint:
            return self.own_queue
        _refuse_unstorable(address)
        table, _, rest = address.partition("@")
        if not table.strip():
            raise UnreadableAddressError(f"The destination {address!r} names no table")
        schema, rest = _next_part(rest)
        catalog, _ = _next_part(rest)
        return SqlServerTable(catalog or self.default_catalog, schema or self.default_schema, table)

    def in_full(self, name: str) -> Sequence[str]:  # noqa: ARG002 - as on PostgreSQL
        """None: an address has nothing in front of the name."""
        return ()


# How an endpoint reads addresses.
Addresses = PostgreSqlAddresses | SqlServerAddresses


def _next_part(text: str) -> tuple[str, str]:
    """The first part of `text`, without its brackets ("" if blank), and the rest."""
    bracketed_part = text.startswith("[")
    in_brackets = bracketed_part
    # The transport looks for an `@` after the first character: `t@@c` is table t in schema @c.
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
