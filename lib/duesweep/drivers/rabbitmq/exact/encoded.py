"""A message's properties byte for byte as they are on the wire. No I/O.

Converting them to Python's values and back would change them: numbers lose their width and their
fractions, and text that is not UTF-8 becomes a byte array.
"""

import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS = 1 << 15, 1 << 14, 1 << 13
_TEXTS = {b"S", b"x"}
# By the letter of the type. RabbitMQ reads both `l` and `L` as signed.
_INTEGERS = {
    b"b": ">b", b"B": ">B", b"s": ">h", b"U": ">h", b"u": ">H",
    b"I": ">i", b"i": ">I", b"l": ">q", b"L": ">q",
}  # fmt: skip
_OTHER_SIZES = {b"t": 1, b"f": 4, b"d": 8, b"D": 5, b"T": 8, b"V": 0}
_SIZES = {kind: struct.calcsize(form) for kind, form in _INTEGERS.items()} | _OTHER_SIZES
_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Encoded:
    """A block of properties. `headers` are the entries of the table of headers: name, and value
    with the letter of its type; None without a table. `before` and `after` are the other
    properties around the table.
    """

    flags: int
    before: bytes
    headers: tuple[tuple[bytes, bytes], ...] | None
    after: bytes

    @classmethod
    def parse(cls, block: bytes) -> "Encoded":
        """Raises `ValueError` for bytes that are not a block of properties."""
        try:
            return cls._parse(block)
        except (struct.error, IndexError, KeyError) as error:
            raise ValueError(f"Not AMQP properties: {error!r}") from error

    @classmethod
    def _parse(cls, block: bytes) -> "Encoded":
        (flags,) = struct.unpack_from(">H", block)
        begin = end = 2
        for flag in (_CONTENT_TYPE, _CONTENT_ENCODING):
            if flags & flag:
                end += 1 + block[end]
        if not flags & _HEADERS:
            return cls(flags, block[begin:end], None, block[end:])
        (length,) = _LENGTH.unpack_from(block, end)
        table = block[end + _LENGTH.size : end + _LENGTH.size + length]
        after = block[end + _LENGTH.size + length :]
        return cls(flags, block[begin:end], tuple(_entries(table)), after)

    def block(self) -> bytes:
        """The properties as they go over the wire."""
        if self.headers is None:
            return struct.pack(">H", self.flags) + self.before + self.after
        table = b"".join(bytes((len(name),)) + name + value for name, value in self.headers)
        flags = struct.pack(">H", self.flags | _HEADERS)
        return flags + self.before + _LENGTH.pack(len(table)) + table + self.after

    def text(self, name: str) -> str | None:
        """A header that is text, or a byte array with text in it; else None."""
        value = self._value(name)
        if value is None or value[:1] not in _TEXTS:
            return None
        try:
            return value[1 + _LENGTH.size :].decode()
        except UnicodeDecodeError:
            return None

    def number(self, name: str) -> int | None:
        """A header that is a whole number; else None."""
        value = self._value(name)
        if value is None or value[:1] not in _INTEGERS:
            return None
        (number,) = struct.unpack_from(_INTEGERS[value[:1]], value, 1)
        return int(number)

    def without(self, names: Collection[str]) -> "Encoded":
        """The same without these headers."""
        gone = {name.encode() for name in names}
        kept = (entry for entry in self.headers or () if entry[0] not in gone)
        return replace(self, headers=None if self.headers is None else tuple(kept))

    def with_number(self, name: str, number: int) -> "Encoded":
        """The same with this header, instead of any other of that name."""
        entry = (name.encode(), struct.pack(">cq", b"l", number))
        return replace(self, headers=(*(self.without([name]).headers or ()), entry))

    def _value(self, name: str) -> bytes | None:
        wanted = name.encode()
        return next((value for known, value in self.headers or () if known == wanted), None)


def _entries(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at < len(table):
        begin = at + 1 + table[at]
        end = begin + 1 + _value_size(table, begin)
        if end > len(table):
            raise IndexError(f"a header ends after its table, at {end}")
        yield table[at + 1 : begin], table[begin:end]
        at = end


def _value_size(table: bytes, at: int) -> int:
    kind = table[at : at + 1]
    if kind in _SIZES:
        return _SIZES[kind]
    if kind not in {b"S", b"x", b"A", b"F"}:
        raise KeyError(kind)
    (length,) = _LENGTH.unpack_from(table, at + 1)
    return _LENGTH.size + int(length)
