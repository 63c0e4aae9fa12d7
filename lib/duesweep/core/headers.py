"""Headers of a message in the formats in which stores keep them, byte for byte.

The SQL transports write JSON: one object, string to string or null, as NServiceBus's
`DictionarySerializer` does (System.Text.Json, with `/` written as `\\/`). The delivered text is
the stored text without one member. It is not parsed and written again, so its order, nulls and
escapes stay.

The MSMQ transport's delayed message store keeps keys and values in XML, as NServiceBus's
`MsmqUtilities` does, a list of HeaderInfo by .NET's XmlSerializer: UTF-8, a null without its
`<Value>`, and characters that XML 1.0 forbids as references (`&#x1;`). The transport refuses
document types, and ignores text after the last end tag.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]
from operator import attrgetter
from typing import Any
from xml.etree import ElementTree  # noqa: TID251 - see _make_parsable

import msgspec

from duesweep.core.errors import UnreadableHeadersError

Headers = Mapping[str, str | None]

FORWARD_DESTINATION = "NServiceBus.SqlServer.ForwardDestination"

_FORWARD_NAME = f'"{FORWARD_DESTINATION}"'
_ASCII_ESCAPE = "\\u00"
_VALUE = re.compile(r'\s*:\s*(?:"[^"\\]*(?:\\.[^"\\]*)*"|null)\s*')
# As strict as .NET's serializer, and four times as fast as `json` and a look at each value.
_decoder = msgspec.json.Decoder(dict[str, str | None])
_text_decoder = msgspec.json.Decoder(str)
# Of the headers of many texts: more names are not learned, nor names that a field cannot have.
_MOST_NAMES = 64
_UNUSUAL_NAME = re.compile(r'["\\\x00-\x1f]')
_SURROGATE = re.compile("[\ud800-\udfff]")
_WHITE = " \t\r\n"
_SPACE = re.compile(f"[{_WHITE}]*")
_NON_ASCII = re.compile(r"[^\x00-\x7f]+")
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


def read_json(text: str | None) -> Headers:
    """The headers in `text`, in their order.

    Raises `UnreadableHeadersError` for all that .NET's serializer refuses: text that is not JSON,
    JSON that is not an object, a value that is neither string nor null, half of a surrogate pair.
    """
    if text is None:
        raise UnreadableHeadersError("There are no headers")
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        fault, cause = _find_fault(text)
    raise UnreadableHeadersError(fault) from cause


class HeaderReader:
    """Reads a few `wanted` headers of many texts at once, as strictly as `read_json`, if it has
    learned all their names. Without dictionaries that takes half the time.
    """

    def __init__(self, *wanted: str) -> None:
        self._names = wanted
        self._get = attrgetter(*(f"n{number}" for number in range(len(wanted))))
        self._decoder: Any = None

    def read(self, texts: Sequence[str], end: str) -> list[tuple[str | None, ...]] | None:
        """The wanted headers of each text, after which `end` is missing. None: one of the texts has
        a name that is not known, or `read_json` might refuse it.
        """
        if self._decoder is None:
            return None
        # Within a string no raw line end is allowed, and outside of one a bracket closes no object:
        # so no text can take in a part of another one, and each is one object.
        joined = f"{end}\n],[".join(texts)
        try:
            found = self._decoder.decode(f"[[{joined}{end}\n]]")
        except (msgspec.DecodeError, UnicodeEncodeError):
            return None
        return [self._get(one) for (one,) in found] if len(found) == len(texts) else None

    def learn(self, read: Iterable[Headers]) -> None:
        """Learn the names of these headers, unless there are too many different ones."""
        names = tuple(dict.fromkeys([*self._names, *(name for each in read for name in each)]))
        is_known = self._decoder is not None and names == self._names
        if is_known or len(names) > _MOST_NAMES or any(map(_UNUSUAL_NAME.search, names)):
            return
        fields = {f"n{number}": name for number, name in enumerate(names)}
        kind = msgspec.defstruct(
            "_Headers",
            [(field, str | None, None) for field in fields],
            rename=fields,
            forbid_unknown_fields=True,
            gc=False,
        )
        self._names, self._decoder = names, msgspec.json.Decoder(list[tuple[kind]])  # type: ignore[valid-type]


def read_json_text(text: str) -> str:
    """The text in a JSON string; raises `UnreadableHeadersError` as `read_json` does."""
    try:
        return _text_decoder.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise UnreadableHeadersError(f"The text is no JSON string: {error}") from error


def _find_fault(text: str) -> tuple[str, Exception | None]:
    """The fault in refused headers, and its cause. msgspec does not name the
    header.
    """
    try:
        headers = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"The headers are not JSON: {error}", error
    if not isinstance(headers, dict):
        return "The headers are JSON, but not an object", None
    for name, value in headers.items():
        if not isinstance(value, str | None):
            return f"The value of header {name!r} is neither text nor null", None
    if _SURROGATE.search("".join([*headers, *filter(None, headers.values())])):
        return "The headers hold half of a surrogate pair", None
    return "The headers hold a name twice, first with a value that .NET refuses", None


def remove_forward_destination(text: str) -> str:
    """`text` without its forward destination; the rest stays byte for byte. `read_json` must have
    accepted `text`.
    """
    # Inside a string the name's quotes would be escaped, with a backslash before the name. So in a
    # flat object `"name"` can only be the member's name, or a whole value. Unusual text is cut
    # member by member: the name twice, or perhaps in escapes, which for ASCII begin with `\u00`.
    before, *others = text.split(_FORWARD_NAME)
    before = before.rstrip(_WHITE)
    if len(others) != 1 or before[-1] not in "{," or _ASCII_ESCAPE in text:
        return remove_headers(text, {FORWARD_DESTINATION})
    value = _VALUE.match(others[0])
    if value is None:
        return remove_headers(text, {FORWARD_DESTINATION})
    after = others[0][value.end() :]
    if after.startswith(","):
        return before + after[1:]
    return before.removesuffix(",") + after


def remove_headers(text: str, names: Collection[str]) -> str:
    """`text` without these headers; the rest stays byte for byte, with the white space around each
    member. `read_json` must have accepted `text`.

    Takes texts that JSON allows but the transports never write: escaped or repeated names.
    """
    members = _members(text)
    if not members:
        return text
    first, end = text.index("{") + 1, members[-1][2]
    kept = [text[start:stop] for name, start, stop in members if name not in names]
    return text[:first] + ",".join(kept) + text[end:]


def set_forward_destination(headers: Headers, destination: str | None) -> Headers:
    """`headers` with `destination` as the forward destination, at the end; None: without one."""
    others = {name: value for name, value in headers.items() if name != FORWARD_DESTINATION}
    return others if destination is None else others | {FORWARD_DESTINATION: destination}


def write_json(headers: Headers) -> str:
    """`headers` as NServiceBus would write them."""
    text = json.dumps(dict(headers), ensure_ascii=False, separators=(",", ":"))
    return _ASTRAL.sub(_surrogate_pair, text.replace("/", "\\/"))


def escape_non_ascii(text: str) -> str:
    """The same JSON in ASCII: for a column that holds the characters of one code page only."""
    return (
        text if text.isascii() else _NON_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text)
    )


def _surrogate_pair(character: re.Match[str]) -> str:
    units = character[0].encode("utf-16-be").hex().upper()
    return f"\\u{units[:4]}\\u{units[4:]}"


def _members(text: str) -> list[tuple[str, int, int]]:
    """The names of the members, and where each starts and ends, with the white space around it."""
    found = []
    start = text.index("{") + 1
    while (at := text.find('"', start)) >= 0:
        name, end = scanstring(text, at + 1)
        end = text.index(":", end) + 1
        end = _SPACE.match(text, end).end()  # type: ignore[union-attr]
        if text[end] not in '"n':
            raise UnreadableHeadersError(f"A value of header {name!r} is neither text nor null")
        end = end + len("null") if text[end] == "n" else scanstring(text, end + 1)[1]
        end = _SPACE.match(text, end).end()  # type: ignore[union-attr]
        found.append((name, start, end))
        # After the comma.
        start = end + 1
    return found


PROPERTY_PREFIX = "NServiceBus.Timeouts.Properties."

_SCHEMA = "http://www.w3.org/2001/XMLSchema"
_ROOT = "ArrayOfHeaderInfo"
_END_TAG = f"</{_ROOT}>"
_BEGIN = (
    f'<?xml version="1.0" encoding="utf-8"?><{_ROOT}'
    f' xmlns:xsi="{_SCHEMA}-instance" xmlns:xsd="{_SCHEMA}"'
)
_NIL = f"{{{_SCHEMA}-instance}}nil"
_ENCODING = re.compile(r"""<\?xml\s[^>]*?\sencoding\s*=\s*["']([^"']*)""")

# Expat refuses these characters even as references. Each is replaced by two private characters: a
# mark and a letter. A mark in the original text is doubled, so that the two are different.
_FORBIDDEN = [*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0xFFFE, 0xFFFF]
_MARK = "\ue000"
_STAND_INS: dict[int, str] = {ord(_MARK): _MARK * 2} | {
    code: _MARK + chr(ord(_MARK) + 1 + index) for index, code in enumerate(_FORBIDDEN)
}
_ORIGINALS = {stand_in: chr(code) for code, stand_in in _STAND_INS.items()}
_STAND_IN = re.compile(_MARK + ".")

# A construct without an end matches all the rest: another search after the next character would
# take quadratic time.
_TOKEN = re.compile(
    r"<!--.*?(?:-->|\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)|<\?.*?(?:\?>|\Z)"
    r"|(?P<declaration><!)|&#(?:x0*(?P<hex>[0-9A-Fa-f]{1,6})|0*(?P<decimal>[0-9]{1,7}));",
    re.DOTALL,
)
_ESCAPES = {code: f"&#x{code:X};" for code in _FORBIDDEN} | {
    ord("&"): "&amp;",
    ord("<"): "&lt;",
    ord(">"): "&gt;",
}


def read_xml(data: bytes | None) -> Headers:
    """The headers in `data`, in their order, with the dispatch properties. Empty data: no headers.

    Raises `UnreadableHeadersError` for text that the transport refuses: bytes that are not UTF-8,
    text that is not XML, a document type, another root element, a key twice, elements inside a key
    or a value; and for a reference to a surrogate. As in the transport, an entry without a key is
    left out.
    """
    if data is None:
        raise UnreadableHeadersError("There are no headers")
    if not data:
        return {}
    end = data.rfind(_END_TAG.encode())
    try:
        text = (data if end < 0 else data[: end + len(_END_TAG)]).decode("utf-8-sig")
        root = ElementTree.fromstring(_make_parsable(text))  # noqa: S314 - no document type
    except (UnicodeDecodeError, ElementTree.ParseError) as error:
        raise UnreadableHeadersError(f"The headers are not XML: {error}") from error
    if root.tag != _ROOT:
        raise UnreadableHeadersError(f"The headers are XML, but not an {_ROOT}")
    return _headers(root)


def split_properties(headers: Headers) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """The message's own headers, and the dispatch properties stored among them, unprefixed."""
    own = {name: headers[name] for name in headers if not name.startswith(PROPERTY_PREFIX)}
    properties = {
        name.removeprefix(PROPERTY_PREFIX): headers[name] for name in headers if name not in own
    }
    return own, properties


def write_xml(headers: Headers) -> bytes:
    """`headers` as NServiceBus would write them. All line ends become LF, also CR and CR LF.

    On Windows NServiceBus writes CR LF, which is read back as LF.
    """
    if not headers:
        return f"{_BEGIN} />".encode()
    parts = [f"{_BEGIN}>"]
    for name, value in headers.items():
        value_element = "" if value is None else _element("Value", value)
        parts.append(f"<HeaderInfo>{_element('Key', name)}{value_element}</HeaderInfo>")
    return "".join([*parts, _END_TAG]).encode()


def _make_parsable(text: str) -> str:
    """`text` with a stand-in for each reference that .NET accepts and expat refuses."""
    encoding = _ENCODING.match(text)
    if encoding and encoding[1].lower() != "utf-8":
        raise UnreadableHeadersError(f"The headers are in {encoding[1]!r}, not in UTF-8")
    text = text.replace(_MARK, _MARK * 2)
    return _TOKEN.sub(_make_token_parsable, text) if "&#" in text or "<!" in text else text


def _make_token_parsable(token: re.Match[str]) -> str:
    if token["declaration"]:
        raise UnreadableHeadersError("The headers declare a document type")
    text: str = token[0]
    if token["hex"]:
        return _STAND_INS.get(int(token["hex"], 16), text)
    if token["decimal"]:
        return _STAND_INS.get(int(token["decimal"]), text)
    return text


def _headers(root: ElementTree.Element) -> Headers:
    headers: dict[str, str | None] = {}
    for entry in root.findall("HeaderInfo"):
        name, value = _text(entry.find("Key")), _text(entry.find("Value"))
        if name is None:
            continue
        if name in headers:
            raise UnreadableHeadersError(f"The headers hold {name!r} twice")
        headers[name] = value
    return headers


def _text(element: ElementTree.Element | None) -> str | None:
    if element is None or element.get(_NIL) in ("true", "1"):
        return None
    if len(element):
        raise UnreadableHeadersError(f"The {element.tag} of a header holds elements")
    text = element.text or ""
    return _STAND_IN.sub(lambda stand_in: _ORIGINALS[stand_in[0]], text) if _MARK in text else text


def _element(tag: str, text: str) -> str:
    escaped = text.replace("\r\n", "\n").replace("\r", "\n").translate(_ESCAPES)
    return f"<{tag}>{escaped}</{tag}>" if text else f"<{tag} />"
