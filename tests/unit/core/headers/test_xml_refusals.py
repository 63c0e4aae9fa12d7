"""Headers as XML: what is refused, above all what could harm the one who reads it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.core.headers.xml import read
from duesweep.errors import UnreadableHeadersError
from support.xml_documents import END, document, one_value

LAUGHS = "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(9))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b" ", id="a blank"),
        pytest.param(b"{}", id="JSON"),
        pytest.param(END, id="the end tag alone"),
        pytest.param(one_value("<Value>v</Value>")[: -len(END)], id="no end tag"),
        pytest.param(one_value("<Value>v</Value>") * 2, id="two documents"),
        pytest.param(b"<ArrayOfHeaderInfo /><junk", id="more behind an empty list"),
        pytest.param(b"<x>" + one_value("") + b"</x>", id="an element around it, cut"),
        pytest.param(b"<ArrayOfString />", id="another root"),
        pytest.param(b"<ArrayOfHeaderInfo xmlns='urn:x'>" + END, id="a root in a namespace"),
        pytest.param(document("<HeaderInfo><Key>k</Key></HeaderInfo>" * 2), id="a key twice"),
        pytest.param(one_value("<Value>v<b/></Value>"), id="an element in a value"),
        pytest.param(document("<HeaderInfo><Key><b/></Key></HeaderInfo>"), id="one in a key"),
        pytest.param(one_value("<Value>v</value>"), id="tags that do not match"),
        pytest.param(one_value("<Value>&b;</Value>"), id="an unknown entity"),
        pytest.param(one_value("<Value>a & b</Value>"), id="an ampersand"),
        pytest.param(one_value("<Value>&#xD800;</Value>"), id="half of a surrogate pair"),
        pytest.param(one_value("<Value>&#xD83D;&#xDE00;</Value>"), id="a pair of references"),
        pytest.param(one_value("<Value>&#x110000;</Value>"), id="a reference beyond Unicode"),
        pytest.param(one_value(f"<Value>&#{'9' * 10_000};</Value>"), id="10,000 digits"),
        pytest.param(one_value("<Value>&#xg;</Value>"), id="no digits"),
        pytest.param(one_value("<Value>\x01</Value>"), id="a control character"),
        pytest.param(one_value("<Value>\0</Value>"), id="a NUL"),
        pytest.param(one_value("<Va&#1;lue/>"), id="a reference in a tag"),
        pytest.param(one_value("").replace(b"k", b"\xff"), id="no UTF-8"),
        pytest.param(one_value("").replace(b"k", b"\xed\xa0\x80"), id="a surrogate as UTF-8"),
        pytest.param(one_value("").decode().encode("utf-16"), id="UTF-16"),
        pytest.param(b"<?xml version='1.0' encoding='latin1'?>" + one_value(""), id="Latin-1"),
        pytest.param(b"\xef\xbb\xbf<?xml version='1.0' encoding='l1'?>" + one_value(""), id="both"),
        pytest.param(b"<!DOCTYPE ArrayOfHeaderInfo>" + one_value(""), id="a document type"),
        pytest.param(document("<!DOCTYPE x>"), id="a document type inside"),
        pytest.param(
            f'<!DOCTYPE x [<!ENTITY l0 "ha">{LAUGHS}]>'.encode() + one_value("<Value>&l9;</Value>"),
            id="a billion laughs",
        ),
        pytest.param(
            b'<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/hostname">]>'
            + one_value("<Value>&f;</Value>"),
            id="an external entity",
        ),
        pytest.param(document("<a>" * 100_000), id="nesting of 100,000, cut"),
        pytest.param(b"<!--" * 100_000, id="100,000 comments without an end"),
        pytest.param(b"<?" * 100_000 + b"&#", id="100,000 instructions without an end"),
    ],
)
def test_what_the_transport_never_writes_is_unreadable(data: bytes) -> None:
    with pytest.raises(UnreadableHeadersError, match=r"^The (headers|Key|Value) "):
        read(data)


def test_headers_that_are_null_are_unreadable() -> None:
    with pytest.raises(UnreadableHeadersError):
        read(None)


MARKUP = "<ArrayOfHeaderInfo> <HeaderInfo> </HeaderInfo> <Key> </Key> <Value> </Value> <Value/>"
TOKENS = "<!-- --> <![CDATA[ ]]> <? ?> <! &#x &# 1 E000 D800 000000000 ; &amp; &x; \ue000 \0 a"
fragments = st.lists(st.sampled_from([*MARKUP.split(" "), *TOKENS.split(" "), END.decode()]))


@given(
    st.binary(max_size=100)
    | fragments.map(lambda context: "".join(context).encode())
    | fragments.map(lambda context: document("".join(context)))
    | fragments.map(lambda context: one_value("".join(context)))
)
def test_any_bytes_are_read_or_unreadable_and_never_anything_else(data: bytes) -> None:
    try:
        headers = read(data)
    except UnreadableHeadersError:
        return
    assert all(value is None or isinstance(value, str) for value in headers.values())
