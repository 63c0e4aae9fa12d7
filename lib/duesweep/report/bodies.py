"""A message's body as a terminal can show it: as text, as JSON, as XML, or in hexadecimal.

A body may be anything: control characters of a terminal are shown as escapes, and no body is
shown beyond a certain length. JSON and XML are indented: no number of JSON changes, and XML has the
same elements and texts. https://www.rfc-editor.org/rfc/rfc8259
"""

import codecs
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from xml.dom import minidom  # noqa: TID251 - document types are refused
from xml.parsers import expat  # noqa: TID251 - its errors

import msgspec

from duesweep.core.errors import make_printable

# About the length that a person reads on a screen.
LONGEST = 20_000
# A longer body is shown as it is: to parse it would take seconds.
_LONGEST_PARSED = 200_000
_HEX_BYTES = 4_096
_BYTES_A_LINE = 16
# With this many control characters in a thousand, it is no text.
_CONTROLS = 50
_SAMPLE_BYTES = 65_536
_INDENT = "  "
_LINE_END = re.compile("\r\n|\n")

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffd]")
_DECLARATION = re.compile(r"\s*<\?xml\s.*?\?>", re.DOTALL)


class BodyForm(StrEnum):
    """How a body is shown."""

    TEXT = "text"
    JSON = "json"
    XML = "xml"
    HEX = "hex"


@dataclass(frozen=True, slots=True)
class BodyView:
    """Lines that can be printed. `is_cut`: they are only the beginning."""

    form: BodyForm
    lines: list[str] = field(default_factory=list)
    is_cut: bool = False


def view_body(body: bytes) -> BodyView:
    """The body in the form that fits its content."""
    match _guess(body):
        case BodyForm.HEX:
            shown = body[:_HEX_BYTES]
            starts = range(0, len(shown), _BYTES_A_LINE)
            lines = [_hex_line(at, shown[at : at + _BYTES_A_LINE]) for at in starts]
            return BodyView(BodyForm.HEX, lines, len(body) > len(shown))
        case BodyForm.JSON | BodyForm.XML as form if len(body) <= _LONGEST_PARSED:
            indented = _indented_json if form is BodyForm.JSON else _indented_xml
            # It is shown as text if it cannot be read in that form.
            with suppress(ValueError, RecursionError, expat.ExpatError):
                return _view(form, indented(_decode(body, "strict")))
    return _view_text(body)


def _guess(body: bytes) -> BodyForm:
    sample = _decode(body[:_SAMPLE_BYTES], "replace")
    if len(_CONTROL.findall(sample)) * 1_000 > _CONTROLS * len(sample):
        return BodyForm.HEX
    match sample.lstrip()[:1]:
        case "{" | "[":
            return BodyForm.JSON
        case "<":
            return BodyForm.XML
    return BodyForm.TEXT


def _view_text(body: bytes) -> BodyView:
    # No character has more than four bytes.
    text = _decode(body[: 4 * LONGEST + _BYTES_A_LINE], "backslashreplace")
    view = _view(BodyForm.TEXT, iter(_LINE_END.split(text)) if text else iter(()))
    is_cut = view.is_cut or len(body) > 4 * LONGEST + _BYTES_A_LINE
    return BodyView(view.form, view.lines, is_cut)


def _hex_line(at: int, part: bytes) -> str:
    letters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)  # noqa: PLR2004 - ASCII
    return f"{at:08x}  {part.hex(' '):<{3 * _BYTES_A_LINE - 1}}  {letters}"


def _view(form: BodyForm, lines: Iterator[str]) -> BodyView:
    """The lines as long as there is room. They are made only as far as they are shown: the
    indents of a body that is nested deeply could be much longer than the body.
    """
    shown: list[str] = []
    left = LONGEST
    for line in lines:
        if left <= 0:
            return BodyView(form, shown, is_cut=True)
        shown.append(make_printable(line[:left]))
        if len(line) > left:
            return BodyView(form, shown, is_cut=True)
        left -= len(line) + 1
    return BodyView(form, shown)


def _decode(body: bytes, errors: str) -> str:
    coding = next((coding for mark, coding in _MARKS if body.startswith(mark)), "utf-8")
    return body.decode(coding, errors)


def _indented_json(text: str) -> Iterator[str]:
    """Lines of the same tokens. Raises `ValueError` for text that is not JSON."""
    # As far as it is shown: the indents of a body that is nested deeply are much longer.
    shown = msgspec.json.format(text.encode(), indent=len(_INDENT))[: 4 * (LONGEST + 2)]
    return iter(shown.decode(errors="ignore").split("\n"))


def _indented_xml(text: str) -> Iterator[str]:
    """Lines of the same elements. Raises `ExpatError` for text that is not XML, and `ValueError`
    for a document type, which could define entities.
    """
    if "<!DOCTYPE" in text:
        raise ValueError("it has a document type")
    declaration = _DECLARATION.match(text)
    if declaration:
        # It names the coding that the text had as bytes.
        yield declaration[0].strip()
    document = minidom.parseString(text[declaration.end() if declaration else 0 :].encode())  # noqa: S318 - no document type
    for node in document.childNodes:
        yield from filter(str.strip, node.toprettyxml(_INDENT).split("\n"))
