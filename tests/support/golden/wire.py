"""What clients send to a PostgreSQL server, read off the wire: statements, the types of their
parameters, round trips and transactions.

https://www.postgresql.org/docs/current/protocol-message-formats.html
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from psycopg import postgres

from support.proxy import Proxy, Way

_PROTOCOL_3 = 196_608
_END_SECONDS = 60
_TYPES = {each.oid: each.name for each in postgres.types} | {
    each.array_oid: f"{each.name}[]" for each in postgres.types if each.array_oid
}
# The server derives the type from the statement.
_TYPES[0] = "?"


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as the server got it, with the types of $1 …; "?" is left to the server."""

    text: str
    types: tuple[str, ...] = ()


@dataclass(slots=True)
class Exchange:
    """The messages of a client before it waited for the server. `waits`: how often it waited, twice
    for a COPY; `is_open`: whether a transaction was open after it.
    """

    statements: list[Statement] = field(default_factory=list)
    waits: int = 1
    is_open: bool = False


class RecordingProxy(Proxy):
    """Keeps what passes. The server must not be asked for encryption (`sslmode=disable`,
    `gssencmode=disable`).
    """

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self._passed: dict[int, dict[Way, bytearray]] = {}
        # So that no other pair gets the id of one that is gone.
        self._pairs: list[object] = []

    def sessions(self) -> list[list[Exchange]]:
        """The exchanges of each session since the last call, in the order of their log-ins."""
        for thread in self._threads[1:]:
            thread.join(_END_SECONDS)
            assert not thread.is_alive(), "a session has not ended"
        passed, self._passed, self._pairs = self._passed, {}, []
        return [_exchanges(both[Way.TO_SERVER], both[Way.TO_CLIENT]) for both in passed.values()]

    def _forward(self, pair: Any, way: Way, data: bytes, passed: int) -> int | None:
        if id(pair) not in self._passed:
            self._pairs.append(pair)
        both = self._passed.setdefault(id(pair), {each: bytearray() for each in Way})
        both[way] += data
        return super()._forward(pair, way, data, passed)


def _exchanges(sent: bytearray, answered: bytearray) -> list[Exchange]:
    """Each Sync or Query of the client's has one ReadyForQuery of the server's."""
    length, protocol = struct.unpack_from("!II", sent)
    assert protocol == _PROTOCOL_3, f"not the start of an unencrypted session: {protocol}"
    asked, ready = _asked(bytes(sent[length:])), _ready(bytes(answered))
    # The first one ends the log-in.
    next(ready)
    exchanges = []
    for statements, (waits, is_open) in zip(asked, ready, strict=True):
        exchanges.append(Exchange(statements, waits, is_open))
    return exchanges


def _asked(sent: bytes) -> Iterator[list[Statement]]:
    statements: list[Statement] = []
    for kind, body in _messages(sent):
        if kind == b"P":
            _, text, rest = body.split(b"\0", 2)
            count, *oids = struct.unpack(f"!H{(len(rest) - 2) // 4}I", rest)
            assert count == len(oids)
            statements.append(Statement(text.decode(), tuple(_type(oid) for oid in oids)))
        elif kind == b"Q":
            statements.append(Statement(body.rstrip(b"\0").decode()))
        if kind in (b"Q", b"S"):
            yield statements
            statements = []
    assert not statements, "a session ended before it had asked for an answer"


def _ready(answered: bytes) -> Iterator[tuple[int, bool]]:
    waits = 1
    for kind, body in _messages(answered):
        # The server is ready to be sent rows.
        waits += kind == b"G"
        if kind == b"Z":
            yield waits, body != b"I"
            waits = 1


def _messages(stream: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = 0
    while place < len(stream):
        (length,) = struct.unpack_from("!I", stream, place + 1)
        yield stream[place : place + 1], stream[place + 5 : place + 1 + length]
        place += 1 + length


def _type(oid: int) -> str:
    return _TYPES.get(oid, f"type {oid}")
