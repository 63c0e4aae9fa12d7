"""Addresses of the PostgreSQL transport, and the tables that they name.

The grammar is that of the transport's `QueueAddress.Parse`. The schema ends at the first dot
outside quotes. Each part may be quoted, with quotes doubled inside. Names are case-sensitive.
"""

from dataclasses import dataclass

from duesweep.core.address.characters import refuse_unstorable
from duesweep.core.errors import UnreadableAddressError


@dataclass(frozen=True, slots=True)
class TableName:
    """A table and its schema, unquoted."""

    schema: str
    table: str

    def __str__(self) -> str:
        """The address in its canonical form, as NServiceBus writes it."""
        return f"{quote_name(self.schema)}.{quote_name(self.table)}"


def quote_name(name: str) -> str:
    """`name` as a quoted PostgreSQL identifier."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class PostgreSqlAddresses:
    """How an endpoint on PostgreSQL reads addresses. Its own name is one identifier, even with
    dots. A name without a schema is in `default_schema`.
    """

    endpoint: str
    default_schema: str

    @property
    def own_queue(self) -> TableName:
        """The endpoint's own input queue."""
        return TableName(self.default_schema, self.endpoint)

    def parse(self, address: str | None) -> TableName:
        """The table that `address` names; None is the endpoint's own queue.

        Raises `UnreadableAddressError` for an address that can name no table.
        """
        if address is None or address == self.endpoint:
            return self.own_queue
        refuse_unstorable(address)
        schema, table = _split(address)
        if not table.strip():
            raise UnreadableAddressError(f"The destination {address!r} names no table")
        return TableName(schema if schema.strip() else self.default_schema, table)


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
