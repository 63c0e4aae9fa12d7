"""What a claimed message says of itself."""

import tracemalloc

import pytest

from duesweep.core.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID, Message, first_type
from duesweep.errors import UnreadableHeadersError
from duesweep_testing.builders import DelayedRow, delayed_row, message


@pytest.mark.parametrize(
    ("types", "first"),
    [
        ("Sales.A, Sales, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null", "Sales.A"),
        ("Sales.A, Sales;Sales.B, Sales", "Sales.A"),
        ("Sales.A;Sales.B", "Sales.A"),
        ("Sales.A", "Sales.A"),
        (" Sales.A , Sales", "Sales.A"),
        ("", None),
        (None, None),
    ],
)
def test_message_type_is_the_first_enclosed_type_without_its_assembly(
    types: str | None, first: str | None
) -> None:
    assert message(delayed_row(more={ENCLOSED_MESSAGE_TYPES: types})).message_type == first


def test_message_without_type_and_id_has_neither() -> None:
    claimed = message(DelayedRow(headers="{}"))

    assert (claimed.message_id, claimed.message_type) == (None, None)


def test_message_id_is_that_of_the_headers() -> None:
    assert message(delayed_row(more={MESSAGE_ID: "order/42"})).message_id == "order/42"


def test_unreadable_headers_have_no_id_and_no_type() -> None:
    claimed = Message("1", 0, UnreadableHeadersError("no JSON"), "{", b"", None)

    assert (claimed.message_id, claimed.message_type) == (None, None)


@pytest.mark.parametrize(("body", "length"), [(None, 0), (b"", 0), (b"\0\1", 2)])
def test_body_bytes_are_the_bodys_length(body: bytes | None, length: int) -> None:
    assert message(delayed_row(body=body)).body_bytes == length


def test_types_of_300_kb_are_not_kept_in_memory() -> None:
    tracemalloc.start()
    try:
        for number in range(100):
            types = f"Sales.A{number}, {'x' * 300_000}"
            assert first_type(types) == f"Sales.A{number}"
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < 2_000_000
