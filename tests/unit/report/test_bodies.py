"""Bodies as a terminal can show them, whatever they are."""

import json
import time
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.core.errors import make_printable
from duesweep.report.bodies import LONGEST, BodyForm, view_body

HTML = b"<!DOCTYPE html><html><body onload=\"alert('x')\"><br>Hello</body></html>"
JSON = b'{"Id":1,"Price":1.10,"Big":123456789012345678901234567890,"Lines":[{"a":null},{}],"e":[]}'


@pytest.mark.parametrize(
    ("body", "form"),
    [
        (b"", BodyForm.TEXT),
        (b"Hello", BodyForm.TEXT),
        (b"  [1]", BodyForm.JSON),
        (b'\xef\xbb\xbf{"a":1}', BodyForm.JSON),
        (b"{not JSON", BodyForm.TEXT),
        (b'{"a":"' + b"x" * 40 + b'\xff"}', BodyForm.TEXT),
        (b"<a>", BodyForm.TEXT),
        (b"<a><b/></a>", BodyForm.XML),
        ('<?xml version="1.0" encoding="utf-16"?><a/>'.encode("utf-16"), BodyForm.XML),
        (HTML, BodyForm.TEXT),
        (b"\x00\x01\x02\x03", BodyForm.HEX),
        (bytes(range(128, 256)), BodyForm.HEX),
        (
            "Größe".encode("latin-1") + b" of this is mostly plain text in an old code",
            BodyForm.TEXT,
        ),
    ],
)
def test_form_fits_the_content(body: bytes, form: BodyForm) -> None:
    view = view_body(body)

    assert (view.form, view.is_cut) == (form, False)


XML = b'<?xml version="1.0"?><n:o xmlns:n="u" a="1>0"><i>1 &lt; 2</i><n:e/><e></e><!--c--></n:o>'
SHOWN = {
    "JSON is indented and no number is changed": (JSON, """\
{
  "Id": 1,
  "Price": 1.10,
  "Big": 123456789012345678901234567890,
  "Lines": [
    {
      "a": null
    },
    {}
  ],
  "e": []
}"""),
    "XML is indented and what was escaped still is": (XML, """\
<?xml version="1.0"?>
<n:o xmlns:n="u" a="1&gt;0">
  <i>1 &lt; 2</i>
  <n:e/>
  <e/>
  <!--c-->
</n:o>"""),
    "HTML is shown as it is": (HTML, HTML.decode()),
    "lines of text stay lines": (b"a\r\nb\n\nc\rd", "a\nb\n\n" + r"c\rd"),
    "bytes are in hexadecimal with their letters": (b"\x00\x1b[2Jabc" + bytes(10), """\
00000000  00 1b 5b 32 4a 61 62 63 00 00 00 00 00 00 00 00  ..[2Jabc........
00000010  00 00                                            .."""),
}  # fmt: skip


@pytest.mark.parametrize(("body", "lines"), SHOWN.values(), ids=SHOWN)
def test_body_is_laid_out(body: bytes, lines: str) -> None:
    assert view_body(body).lines == lines.split("\n")


def test_document_type_is_not_read_as_xml() -> None:
    body = (
        b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/hostname">]><a>&b;</a>'
    )

    assert view_body(body).lines == [body.decode()]


@pytest.mark.parametrize(
    ("form", "around"), [(BodyForm.JSON, '{"a":"%s"}'), (BodyForm.XML, "<a>%s</a>")]
)
def test_escapes_within_json_and_xml_are_shown_as_such(form: BodyForm, around: str) -> None:
    view = view_body((around % "\x9b2J\u202e").encode())

    assert view.form is form
    assert r"\x9b2J\u202e" in "".join(view.lines)


@pytest.mark.parametrize(
    "body",
    [
        b"x" * 10_000_000,
        b"\xff" * 10_000_000,
        b'{"a":"' + b"x" * 10_000_000 + b'"}',
        b"[" * 10_000_000,
        b"[" * 900 + b"1," * 90_000 + b"1" + b"]" * 900,
        b"<a>" * 900 + b"<b/>" * 40_000 + b"</a>" * 900,
        b"<a>" * 60_000 + b"</a>" * 20_000,
        b"<" * 190_000,
        b"\n" * 10_000_000,
        b'<!DOCTYPE a [<!ENTITY b "' + b"c" * 1_000 + b'">]><a>' + b"&b;" * 50_000 + b"</a>",
        "\N{GRINNING FACE}".encode() * 2_500_000,
    ],
    ids=range(11),
)
def test_large_body_is_cut_in_little_time(body: bytes) -> None:
    start = time.process_time()

    view = view_body(body)

    assert time.process_time() - start < 5
    assert view.is_cut
    # An escape takes ten characters at most.
    assert sum(len(line) + 1 for line in view.lines) <= 10 * LONGEST


@given(st.sampled_from([b"", b"{", b"<a>"]), st.binary(max_size=300))
def test_any_bytes_can_be_printed(start: bytes, body: bytes) -> None:
    for line in view_body(start + body).lines:
        assert make_printable(line) == line
        line.encode()


_VALUES = st.recursive(
    st.none() | st.integers() | st.text('ab"\\{}[]:, ', max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(_VALUES.filter(lambda value: isinstance(value, list | dict)))
def test_indented_json_means_the_same(value: object) -> None:
    view = view_body(json.dumps(value).encode())

    assert view.form is BodyForm.JSON
    assert json.loads("\n".join(view.lines)) == value


@given(
    st.lists(
        st.sampled_from(["<b>", "</b>", "<c d='>'/>", "text", " ", "<!--x-->", "&lt;"]), max_size=9
    )
)
def test_indented_xml_has_the_same_elements(parts: list[str]) -> None:
    text = f"<a>{''.join(parts)}</a>"
    try:
        expected = [element.tag for element in ElementTree.fromstring(text).iter()]
    except ElementTree.ParseError:
        return

    shown = "\n".join(view_body(text.encode()).lines)

    assert [element.tag for element in ElementTree.fromstring(shown).iter()] == expected
