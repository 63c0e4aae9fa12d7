"""Headers as XML: reading, writing byte for byte, and refusals, above all of texts that
could harm the reader.
"""

import base64
import json
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from duesweep.core.errors import UnreadableHeadersError
from duesweep.core.headers import PROPERTY_PREFIX, Headers, read_xml, split_properties, write_xml

FIXTURE = Path(__file__).parents[3] / "fixtures" / "msmq_headers.jsonl"
RECORDINGS = {line["name"]: line for line in map(json.loads, FIXTURE.read_bytes().splitlines())}

END = b"</ArrayOfHeaderInfo>"


def document(entries: str) -> bytes:
    return f"<ArrayOfHeaderInfo>{entries}</ArrayOfHeaderInfo>".encode()


def one_value(value: str) -> bytes:
    return document(f"<HeaderInfo><Key>k</Key>{value}</HeaderInfo>")


# The private characters stand in for others while the XML is parsed.
characters = st.one_of(
    st.characters(exclude_categories=["Cs"]),
    st.sampled_from("\ue000\ue001\ue002\ue01f\x00\x01\x1f\ufffe\uffff\t\n\r<&>]'\""),
)
texts = st.text(characters, max_size=8)
header_sets = st.dictionaries(texts, st.none() | texts, max_size=5)
spellings = st.sampled_from(["{0}", "&#{1};", "&#x{1:x};", "&#x{1:X};", "&#000{1};", "&#x0{1:X};"])


def with_lf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


@pytest.mark.parametrize("name", [name for name in RECORDINGS if name != "control-chars"])
def test_recorded_bytes_are_read_as_the_dictionary_that_they_were_made_of(name: str) -> None:
    recording = RECORDINGS[name]

    headers = read_xml(base64.b64decode(recording["xml"]))

    assert list(headers.items()) == list(recording["headers"].items())


def test_cr_that_net_wrote_as_a_plain_line_end_comes_back_as_lf() -> None:
    recording = RECORDINGS["control-chars"]
    assert recording["headers"]["Ctl"] == "a\x01b\x1fc\rd\ne\tf"

    headers = read_xml(base64.b64decode(recording["xml"]))

    assert headers["Ctl"] == "a\x01b\x1fc\nd\ne\tf"
    assert headers == recording["headers"] | {"Ctl": headers["Ctl"]}


@pytest.mark.parametrize("name", RECORDINGS)
def test_headers_are_written_as_the_recorded_bytes(name: str) -> None:
    recorded = base64.b64decode(RECORDINGS[name]["xml"])

    assert write_xml(RECORDINGS[name]["headers"]) == recorded[: recorded.rindex(END) + len(END)]


@pytest.mark.parametrize("name", RECORDINGS)
def test_dispatch_properties_are_parted_from_the_headers(name: str) -> None:
    recording = RECORDINGS[name]

    headers, properties = split_properties(recording["headers"])

    assert properties["NServiceBus.Timeout.Destination"] == recording["to"]
    assert properties.keys() >= {"NServiceBus.Timeout.Expire"}
    assert headers.items() <= recording["headers"].items()
    assert len(headers) + len(properties) == len(recording["headers"])
    assert not any(header.startswith(PROPERTY_PREFIX) for header in headers)


@pytest.mark.parametrize(
    ("data", "headers"),
    [
        pytest.param(b"<ArrayOfHeaderInfo />", {}, id="an empty list"),
        pytest.param(b"\xef\xbb\xbf" + one_value("<Value>v</Value>"), {"k": "v"}, id="a BOM"),
        pytest.param(one_value("<Value>v</Value>") + END[:-1], {"k": "v"}, id="half an end tag"),
        pytest.param(one_value("<Value>v</Value>") + b"\xff\xfe", {"k": "v"}, id="no UTF-8 behind"),
        pytest.param(one_value(""), {"k": None}, id="no value"),
        pytest.param(one_value("<Value></Value>"), {"k": ""}, id="an empty value"),
        pytest.param(
            one_value('<Value xmlns:i="http://www.w3.org/2001/XMLSchema-instance" i:nil="true"/>'),
            {"k": None},
            id="nil",
        ),
        pytest.param(one_value("<Value> \t\n </Value>"), {"k": " \t\n "}, id="blank"),
        pytest.param(one_value("<Value>a\r\nb\rc</Value>"), {"k": "a\nb\nc"}, id="line ends"),
        pytest.param(one_value("<Value>a&#xD;&#13;</Value>"), {"k": "a\r\r"}, id="CR references"),
        pytest.param(one_value("<Value>&#x0;&#0;</Value>"), {"k": "\0\0"}, id="NUL references"),
        pytest.param(
            one_value("<Value>&#x1F600;&quot;&apos;</Value>"),
            {"k": "\N{GRINNING FACE}\"'"},
            id="quotes, and a reference to an emoji",
        ),
        pytest.param(
            one_value("<Value>a<!-- &#1; <!DOCTYPE -->b<?c &#1; <!?>d</Value>"),
            {"k": "abd"},
            id="comment and instruction",
        ),
        pytest.param(
            one_value("<Value><![CDATA[<!DOCTYPE &#x1;&#xE000;\ue000]]>&#x1;</Value>"),
            {"k": "<!DOCTYPE &#x1;&#xE000;\ue000\x01"},
            id="CDATA",
        ),
        pytest.param(one_value("<Value>1</Value><Value>2</Value>"), {"k": "1"}, id="two values"),
        pytest.param(
            document("<HeaderInfo><Value>v</Value><Key>k</Key></HeaderInfo>"),
            {"k": "v"},
            id="value first",
        ),
        pytest.param(
            document(
                " x <Other><HeaderInfo/></Other>\n"
                "<HeaderInfo a='b'> <Other/> <Key c='d'>k</Key>\n<Value>v</Value> </HeaderInfo>"
                "<HeaderInfo xmlns='urn:x'><Key>n</Key></HeaderInfo>"
                "<HeaderInfo><Value>no key</Value></HeaderInfo>"
            ),
            {"k": "v"},
            id="what the transport skips",
        ),
    ],
)
def test_unusual_but_proper_headers_are_read(data: bytes, headers: Headers) -> None:
    assert read_xml(data) == headers


def test_no_headers_are_written_as_an_empty_list() -> None:
    assert write_xml({}).endswith(b'XMLSchema" />')


@given(header_sets)
@example({"": "", "\ue000": "\ue000\ue001\x00", "\x00": "\ue000\ue000\ue002"})
def test_headers_written_and_read_differ_in_line_ends_at_most(
    headers: dict[str, str | None],
) -> None:
    expected = {with_lf(name): value and with_lf(value) for name, value in headers.items()}
    assume(len(expected) == len(headers))

    assert list(read_xml(write_xml(headers)).items()) == list(expected.items())


@given(st.lists(st.tuples(characters, spellings), max_size=8))
def test_value_is_read_however_its_characters_are_spelt(spelt: list[tuple[str, str]]) -> None:
    # Raw, some mean something else or nothing at all.
    forms = [
        "&#{1};" if form == "{0}" and (character < " " or character in "<&]\ufffe\uffff") else form
        for character, form in spelt
    ]
    value = "".join(s.format(c, ord(c)) for s, (c, _) in zip(forms, spelt, strict=True))

    assert read_xml(one_value(f"<Value>{value}</Value>")) == {"k": "".join(c for c, _ in spelt)}


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(None, id="null"),
        pytest.param(END, id="the end tag alone"),
        pytest.param(b"<ArrayOfHeaderInfo /><junk", id="more behind an empty list"),
        pytest.param(b"<x>" + one_value("") + b"</x>", id="an element around it, cut"),
        pytest.param(b"<ArrayOfHeaderInfo xmlns='urn:x'>" + END, id="a root in a namespace"),
        pytest.param(one_value("<Value>v<b/></Value>"), id="an element in a value"),
        pytest.param(document("<HeaderInfo><Key><b/></Key></HeaderInfo>"), id="one in a key"),
        pytest.param(one_value("<Value>v</value>"), id="tags that do not match"),
        pytest.param(one_value("<Value>&b;</Value>"), id="an unknown entity"),
        pytest.param(one_value("<Value>a & b</Value>"), id="an ampersand"),
        pytest.param(one_value("<Value>&#xD83D;&#xDE00;</Value>"), id="a pair of references"),
        pytest.param(one_value("<Value>&#x110000;</Value>"), id="a reference beyond Unicode"),
        pytest.param(one_value("<Value>&#xg;</Value>"), id="no digits"),
        pytest.param(one_value("<Va&#1;lue/>"), id="a reference in a tag"),
        pytest.param(one_value("").replace(b"k", b"\xff"), id="no UTF-8"),
        pytest.param(b"<?xml version='1.0' encoding='latin1'?>" + one_value(""), id="Latin-1"),
        pytest.param(b"\xef\xbb\xbf<?xml version='1.0' encoding='l1'?>" + one_value(""), id="both"),
        pytest.param(b"<!DOCTYPE ArrayOfHeaderInfo>" + one_value(""), id="a document type"),
        pytest.param(b"<?" * 100_000 + b"&#", id="100,000 instructions without an end"),
    ],
)
def test_what_the_transport_never_writes_is_unreadable(data: bytes | None) -> None:
    with pytest.raises(UnreadableHeadersError, match=r"^The(re are no)? (headers|Key|Value)"):
        read_xml(data)


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
        headers = read_xml(data)
    except UnreadableHeadersError:
        return
    assert all(value is None or isinstance(value, str) for value in headers.values())
