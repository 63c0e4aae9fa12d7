"""What SQL Server stores as text need not be UTF-16."""

import pytest

from duesweep.drivers.sqlserver.session import _decode_utf16


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        ("Grüße 😀".encode("utf-16-le"), "Grüße 😀"),
        (b"\x00\xd8", r"\x00\xd8"),
        (b"a\x00\x00\xdc", r"a\x00\xdc"),
        (None, None),
    ],
)
def test_half_a_surrogate_pair_is_shown_and_fails_no_task(
    stored: bytes | None, text: str | None
) -> None:
    assert _decode_utf16(stored) == text
