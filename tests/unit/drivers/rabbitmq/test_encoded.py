"""A message's properties survive byte for byte, whatever types its headers have."""

import struct
from contextlib import suppress

import pika
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.drivers.rabbitmq.exact import Encoded


def _short(text: bytes) -> bytes:
    return bytes((len(text),)) + text


def _long(kind: bytes, value: bytes) -> bytes:
    return kind + struct.pack(">I", len(value)) + value


_VALUES = st.one_of(
    st.tuples(st.sampled_from([b"S", b"x", b"A", b"F"]), st.binary(max_size=20)).map(
        lambda pair: _long(*pair)
    ),
    st.sampled_from(
        [(b"t", 1), (b"b", 1), (b"B", 1), (b"s", 2), (b"U", 2), (b"u", 2), (b"I", 4), (b"i", 4),
         (b"l", 8), (b"L", 8), (b"f", 4), (b"d", 8), (b"D", 5), (b"T", 8), (b"V", 0)]
    ).flatmap(lambda kind: st.binary(min_size=kind[1], max_size=kind[1]).map(kind[0].__add__)),
)  # fmt: skip
_ENTRIES = st.lists(st.tuples(st.binary(max_size=255), _VALUES), max_size=6)


def _block(entries: list[tuple[bytes, bytes]], before: bytes = b"", after: bytes = b"") -> bytes:
    """Content type and content encoding before the headers, the delivery mode after them."""
    table = b"".join(_short(name) + value for name, value in entries)
    flags = 0xF000 if before else 0x3000
    return struct.pack(">H", flags) + before + struct.pack(">I", len(table)) + table + after


@given(entries=_ENTRIES, texts=st.none() | st.tuples(*[st.binary(max_size=255)] * 2))
def test_block_survives(
    entries: list[tuple[bytes, bytes]], texts: tuple[bytes, bytes] | None
) -> None:
    before = b"".join(map(_short, texts)) if texts else b""
    block = _block(entries, before, b"\x02")

    encoded = Encoded.parse(block)

    assert encoded.headers == tuple(entries)
    assert encoded.block() == block
    numbered = encoded.with_number("number", 7)
    assert Encoded.parse(numbered.block()) == numbered
    assert numbered.number("number") == 7
    assert encoded.without({"number"}).headers == numbered.without({"number"}).headers


@given(block=st.binary(max_size=40))
def test_anything_else_is_a_value_error(block: bytes) -> None:
    with suppress(ValueError):
        Encoded.parse(block)


def test_properties_without_headers_have_none_until_there_is_one() -> None:
    block = b"".join(pika.BasicProperties(content_type="a/b", message_id="1").encode())

    encoded = Encoded.parse(block)

    assert encoded.headers is None
    assert encoded.block() == block
    assert encoded.without({"x-death"}).headers is None
    decoded = pika.BasicProperties().decode(encoded.with_number("n", 1).block())
    assert (decoded.content_type, decoded.message_id, decoded.headers) == ("a/b", "1", {"n": 1})


@pytest.mark.parametrize(
    ("value", "text", "number"),
    [
        (_long(b"S", "é".encode()), "é", None),
        (_long(b"x", "é".encode()), "é", None),
        (_long(b"x", b"\xff"), None, None),
        (b"I" + struct.pack(">i", -5), None, -5),
        (b"l" + struct.pack(">q", 2**40), None, 2**40),
        (b"B\xff", None, 255),
        (b"b\xff", None, -1),
        (b"t\x01", None, None),
        (b"d" + struct.pack(">d", 1.5), None, None),
        (b"V", None, None),
    ],
)
def test_header_is_text_or_a_whole_number_or_neither(
    value: bytes, text: str | None, number: int | None
) -> None:
    encoded = Encoded.parse(_block([(b"other", b"V"), (b"name", value)]))

    assert (encoded.text("name"), encoded.number("name")) == (text, number)
    assert (encoded.text("none"), encoded.number("none")) == (None, None)
