"""What SQL Server's drivers send before they are logged in: a server that refuses each login.

The protocol: https://learn.microsoft.com/openspecs/windows_protocols/ms-tds
"""

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

_PRELOGIN, _LOGIN, _ANSWER = 0x12, 0x10, 0x04
_NOT_SUPPORTED, _ON = 0x02, 0x01
_ENCRYPTION, _END = 0x01, 0xFF
_HEADER = 8
_LOGIN_FAILED = 18456


@dataclass(frozen=True, slots=True)
class Login:
    """A login that arrived; `encryption` is the driver's wish in its first packet."""

    user: str
    password: str
    encryption: int


@dataclass(slots=True)
class TdsListener:
    """Listens on loopback, with TLS if it has a certificate. `logins` are the arrived logins, and
    `asked` the encryption that each connection asked for.
    """

    certificate: tuple[Path, Path] | None = None
    logins: list[Login] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    port: int = 0

    def serve(self, listener: socket.socket) -> None:
        for connection in arriving(listener):
            with connection, suppress(OSError, IndexError, struct.error):
                connection.settimeout(20)
                self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        _, request = read_message(connection)
        encryption = _option(request, _ENCRYPTION)
        self.asked.append(encryption)
        connection.sendall(packet(prelogin(_ON if self.certificate else _NOT_SUPPORTED)))
        reader: socket.socket | _Tunnel = connection
        if self.certificate:
            reader = _Tunnel(connection, *self.certificate)
        kind, login = read_message(reader)
        if kind == _LOGIN:
            self.logins.append(Login(_text(login, 40), _clear(login), encryption))
            reader.sendall(packet(_refusal()))
            # Who hangs up first would take the answer away.
            connection.recv(1)


class _Tunnel:
    """TLS whose handshake travels in packets of TDS, as SQL Server does it."""

    def __init__(self, connection: socket.socket, certificate: Path, key: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # The handshake's packets have headers, so its end has to be the same for both sides.
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(certificate, key)
        self._connection = connection
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush(packet)
                self._in.write(read_message(connection)[1])
        self._flush(packet)

    def recv(self, count: int) -> bytes:
        while True:
            try:
                return self._tls.read(count)
            except ssl.SSLWantReadError:
                received = self._connection.recv(65_536)
                if not received:
                    return b""
                self._in.write(received)

    def sendall(self, data: bytes) -> None:
        self._tls.write(data)
        self._flush(bytes)

    def _flush(self, wrap: "type[bytes] | object") -> None:
        sent = self._out.read()
        if sent:
            self._connection.sendall(wrap(sent) if callable(wrap) else sent)


def arriving(listener: socket.socket) -> Iterator[socket.socket]:
    """Connections, until the listener is closed."""
    with suppress(OSError):
        while True:
            yield listener.accept()[0]


@contextmanager
def tds_listener(certificate: tuple[Path, Path] | None = None) -> Iterator[TdsListener]:
    """A listener; with a certificate and its key, it has TLS."""
    with socket.create_server(("127.0.0.1", 0)) as socket_:
        listener = TdsListener(certificate, port=socket_.getsockname()[1])
        threading.Thread(target=listener.serve, args=(socket_,), daemon=True).start()
        yield listener


def read_message(connection: "socket.socket | _Tunnel") -> tuple[int, bytes]:
    """The kind and content of a message, which may have several packets."""
    content = b""
    while True:
        kind, status, length = struct.unpack(">BBH4x", exactly(connection, _HEADER))
        content += exactly(connection, length - _HEADER)
        if status & 1:
            return kind, content


def exactly(connection: "socket.socket | _Tunnel", count: int) -> bytes:
    """This many bytes. Raises `ConnectionResetError` if the other side hangs up."""
    content = b""
    while len(content) < count:
        received = connection.recv(count - len(content))
        if not received:
            raise ConnectionResetError
        content += received
    return content


def packet(content: bytes, kind: int = _ANSWER) -> bytes:
    """A message of one packet."""
    return struct.pack(">BBHHBB", kind, 1, len(content) + _HEADER, 0, 1, 0) + content


def prelogin(encryption: int) -> bytes:
    """The answer to a client's first message."""
    version = bytes((16, 0, 0x10, 0, 0, 0))
    options = struct.pack(">BHHBHHB", 0, 11, len(version), _ENCRYPTION, 17, 1, _END)
    return options + version + bytes((encryption,))


def _option(request: bytes, wanted: int) -> int:
    at = 0
    while request[at] != _END:
        token, offset, _ = struct.unpack_from(">BHH", request, at)
        if token == wanted:
            return request[offset]
        at += 5
    raise IndexError


def _text(login: bytes, at: int) -> str:
    return _part(login, at).decode("utf-16-le")


def _clear(login: bytes) -> str:
    """The password, whose bytes have their halves swapped and are XORed with 0xA5."""
    hidden = (byte ^ 0xA5 for byte in _part(login, 44))
    return bytes((byte >> 4 | byte << 4) & 0xFF for byte in hidden).decode("utf-16-le")


def _part(login: bytes, at: int) -> bytes:
    offset, length = struct.unpack_from("<HH", login, at)
    return login[offset : offset + 2 * length]


def _refusal() -> bytes:
    text = "Login failed."
    told = struct.pack("<iBBH", _LOGIN_FAILED, 1, 14, len(text)) + text.encode("utf-16-le")
    told += bytes((0, 0)) + struct.pack("<i", 1)
    done = struct.pack("<BHHQ", 0xFD, 2, 0, 0)
    return struct.pack("<BH", 0xAA, len(told)) + told + done
