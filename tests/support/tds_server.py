"""A server that speaks enough of SQL Server's protocol for Microsoft's driver: it accepts a login,
records each request with the declarations of its parameters, and answers as a test says.

The protocol: https://learn.microsoft.com/openspecs/windows_protocols/ms-tds
"""

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from support.tds_listener import arriving, packet, prelogin, read_message

_BATCH, _RPC, _ATTENTION, _TRANSACTION = 1, 3, 6, 14
_NOT_SUPPORTED = 0x02
_COLLATION = bytes((0x09, 0x04, 0xD0, 0x00, 0x34))
_DONE, _DONE_IN_PROC, _DONE_PROC = 0xFD, 0xFF, 0xFE
_MORE, _COUNT, _ERROR, _ACKNOWLEDGED = 0x01, 0x10, 0x02, 0x20
_PROCEDURES = {
    10: "sp_executesql",
    11: "sp_prepare",
    12: "sp_execute",
    13: "sp_prepexec",
    15: "sp_unprepare",
}
_TRANSACTIONS = {5: "BEGIN", 7: "COMMIT", 8: "ROLLBACK", 9: "SAVE"}
_PREPARING = {"sp_prepexec", "sp_prepare"}
# Types whose values have a length of one byte, of two bytes, and whether they are text.
_SHORT = {0x26: "int", 0x68: "bit", 0x6D: "float", 0x6F: "datetime", 0x24: "uniqueidentifier"}
_LONG = {
    0xE7: ("nvarchar", True),
    0xEF: ("nchar", True),
    0xA7: ("varchar", False),
    0xA5: ("varbinary", False),
    0xAD: ("binary", False),
}
_COLLATED = {0xE7, 0xEF, 0xA7}
_UNLIMITED = 0xFFFF
_MOST_IN_A_PACKET = 4_096 - 8


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter as it was sent: `declared` is its type with its length."""

    declared: str
    value: object


@dataclass(frozen=True, slots=True)
class Request:
    """A request. `text` is its statement; `procedure` the system procedure that runs it, or the
    kind of a request that is none; `parameters` are the statement's own.
    """

    procedure: str
    text: str
    parameters: Sequence[Parameter] = ()


# The tokens of the answer to a request; None: nothing was found.
Answer = Callable[[Request], bytes | None]


@dataclass(slots=True)
class TdsServer:
    """Listens on loopback. `requests` are the ones that came after logins; `logins` how many came.
    With `redirects_to` it sends each client on to that port. If it `falls_silent`, it sends the
    first packet of the answer to a statement, and no more.
    """

    answer: Answer = lambda _: None
    redirects_to: int | None = None
    falls_silent: bool = False
    requests: list[Request] = field(default_factory=list)
    logins: int = 0
    port: int = 0
    _handle: int = 0

    def serve(self, listener: socket.socket) -> None:
        for connection in arriving(listener):
            threading.Thread(target=self._serve_one, args=(connection,), daemon=True).start()

    def _serve_one(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            read_message(connection)
            connection.sendall(packet(prelogin(_NOT_SUPPORTED)))
            read_message(connection)
            self.logins += 1
            connection.sendall(packet(_accepted(self.redirects_to)))
            while True:
                self._answer(connection, *read_message(connection))

    def _answer(self, connection: socket.socket, kind: int, content: bytes) -> None:
        if kind == _ATTENTION:
            self.requests.append(Request("attention", ""))
            connection.sendall(packet(_done(status=_ACKNOWLEDGED)))
            return
        body = content[struct.unpack_from("<I", content)[0] :]
        if kind == _TRANSACTION:
            (number,) = struct.unpack_from("<H", body)
            self.requests.append(Request(_TRANSACTIONS.get(number, str(number)), ""))
            connection.sendall(packet(_done()))
            return
        if kind == _BATCH:
            request = Request("batch", body.decode("utf-16-le"))
            self.requests.append(request)
            connection.sendall(packet((self.answer(request) or b"") + _done()))
            return
        requests = list(_calls(body))
        self.requests += requests
        answer = b"".join(map(self._of_call, requests))
        if self.falls_silent and any(one.procedure in _PREPARING for one in requests):
            first = packet(answer[:_MOST_IN_A_PACKET])
            # Its status says that more packets follow.
            connection.sendall(first[:1] + b"\0" + first[2:])
            threading.Event().wait()
        connection.sendall(packet(answer))

    def _of_call(self, request: Request) -> bytes:
        found = self.answer(request) or b""
        if request.procedure in _PREPARING:
            self._handle += 1
            found += _returned(self._handle)
        return found + struct.pack("<Bi", 0x79, 0) + _done(_DONE_PROC)


@contextmanager
def tds_server(answer: Answer = lambda _: None, **options: Any) -> Iterator[TdsServer]:
    """A server for the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = TdsServer(answer, port=listener.getsockname()[1], **options)
        threading.Thread(target=server.serve, args=(listener,), daemon=True).start()
        yield server


# Answers.


def rows(columns: Sequence[str], *found: Sequence[int | str | None]) -> bytes:
    """A result with these columns: `name` is text, `name:int` a whole number."""
    kinds = [column.partition(":") for column in columns]
    tokens = struct.pack("<BH", 0x81, len(columns))
    for name, _, kind in kinds:
        tokens += struct.pack("<IH", 0, 9)
        tokens += bytes((0x26, 8)) if kind else b"\xe7" + struct.pack("<H", 8_000) + _COLLATION
        tokens += _short_text(name)
    for row in found:
        tokens += b"\xd1"
        for (_, _, kind), value in zip(kinds, row, strict=True):
            tokens += _number(value) if kind else _string(value)
    return tokens + _done(_DONE_IN_PROC, status=_MORE | _COUNT, count=len(found))


def counted(count: int) -> bytes:
    """The end of a statement that touched this many rows."""
    return _done(_DONE_IN_PROC, status=_MORE | _COUNT, count=count)


def error(number: int, text: str, severity: int = 16) -> bytes:
    """An error of the server."""
    told = struct.pack("<iBB", number, 1, severity) + _long_text(text)
    told += _short_text("server") + _short_text("") + struct.pack("<i", 1)
    failed = _done(_DONE_IN_PROC, status=_MORE | _ERROR)
    return struct.pack("<BH", 0xAA, len(told)) + told + failed


def _number(value: object) -> bytes:
    return b"\0" if value is None else bytes((8,)) + struct.pack("<q", value)


def _string(value: object) -> bytes:
    if value is None:
        return b"\xff\xff"
    encoded = str(value).encode("utf-16-le")
    return struct.pack("<H", len(encoded)) + encoded


# Tokens.


def _accepted(redirects_to: int | None) -> bytes:
    tokens = _changed(1, _short_text("nsb"), _short_text("master"))
    tokens += _changed(7, bytes((5,)) + _COLLATION, b"\0")
    acknowledged = struct.pack(">BI", 1, 0x74000004) + _short_text("Microsoft SQL Server")
    acknowledged += bytes((16, 0, 0x10, 0))
    tokens += struct.pack("<BH", 0xAD, len(acknowledged)) + acknowledged
    tokens += _changed(4, _short_text("4096"), _short_text("4096"))
    if redirects_to is not None:
        name = "127.0.0.1"
        there = struct.pack("<BH", 0, redirects_to) + _long_text(name)
        tokens += _changed(20, struct.pack("<H", len(there)) + there, b"\0\0")
    return tokens + _done()


def _changed(kind: int, new: bytes, old: bytes) -> bytes:
    change = bytes((kind,)) + new + old
    return struct.pack("<BH", 0xE3, len(change)) + change


def _returned(value: int) -> bytes:
    described = struct.pack("<IH", 0, 0) + bytes((0x26, 4))
    return (
        struct.pack("<BH", 0xAC, 0)
        + _short_text("")
        + bytes((1,))
        + described
        + struct.pack("<Bi", 4, value)
    )


def _done(token: int = _DONE, status: int = 0, count: int = 0) -> bytes:
    return struct.pack("<BHHQ", token, status, 0, count)


def _short_text(text: str) -> bytes:
    return bytes((len(text),)) + text.encode("utf-16-le")


def _long_text(text: str) -> bytes:
    return struct.pack("<H", len(text)) + text.encode("utf-16-le")


# Requests.


class _Reader:
    """Reads the parameters of calls."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    @property
    def is_at_end(self) -> bool:
        return self._at >= len(self._content)

    def peek(self) -> int:
        return self._content[self._at]

    def take(self, count: int) -> bytes:
        taken = self._content[self._at : self._at + count]
        self._at += count
        return taken

    def number(self, form: str) -> int:
        (value,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return int(value)


def _calls(content: bytes) -> Iterator[Request]:
    reader = _Reader(content)
    while not reader.is_at_end:
        length = reader.number("<H")
        if length == 0xFFFF:
            number = reader.number("<H")
            name = _PROCEDURES.get(number, str(number))
        else:
            name = reader.take(2 * length).decode("utf-16-le")
        reader.take(2)
        found: list[Parameter] = []
        while not reader.is_at_end and reader.peek() not in {0x80, 0xFF}:
            found.append(_parameter(reader))
        if not reader.is_at_end:
            reader.take(1)
        # Before the values come the handle, the declarations of the parameters, and the statement.
        if name in _PREPARING and len(found) > 2:
            yield Request(name, str(found[2].value), found[3:])
        else:
            yield Request(name, "", found)


def _parameter(reader: _Reader) -> Parameter:
    reader.take(2 * reader.number("<B"))
    reader.take(1)
    kind = reader.number("<B")
    if kind in _SHORT:
        size = reader.number("<B")
        value = reader.take(reader.number("<B"))
        number = int.from_bytes(value, "little", signed=True) if value else None
        return Parameter(f"{_SHORT[kind]}({size})", number if kind == 0x26 else value)
    name, is_text = _LONG[kind]
    size = reader.number("<H")
    if kind in _COLLATED:
        reader.take(len(_COLLATION))
    raw = _unlimited(reader) if size == _UNLIMITED else _limited(reader)
    length = "max" if size == _UNLIMITED else str(size // 2 if is_text else size)
    value = raw.decode("utf-16-le") if raw is not None and is_text else raw
    return Parameter(f"{name}({length})", value)


def _limited(reader: _Reader) -> bytes | None:
    length = reader.number("<H")
    return None if length == _UNLIMITED else reader.take(length)


def _unlimited(reader: _Reader) -> bytes | None:
    if reader.number("<Q") == 0xFFFFFFFFFFFFFFFF:
        return None
    value = b""
    while chunk := reader.number("<I"):
        value += reader.take(chunk)
    return value


if __name__ == "__main__":
    many = rows(["message_key", "attempts:int"], *[("a key", 1)] * 1_000)
    with tds_server(
        lambda one: many if one.procedure in _PREPARING else None, falls_silent=True
    ) as running:
        print(running.port, flush=True)
        threading.Event().wait()
