"""Headers as the MSMQ transport's delayed message store keeps them: keys and values in XML.

The format is that of NServiceBus's `MsmqUtilities`, a list of HeaderInfo by .NET's XmlSerializer:
UTF-8, a null without its `<Value>`, and characters that XML 1.0 forbids as references (`&#x1;`).
The transport refuses document types, and ignores what follows the last end tag.
"""

import re
from xml.etree import ElementTree  # noqa: TID251 - see _make_parsable

from duesweep.core.errors import UnreadableHeadersError
from duesweep.core.message import Headers

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
# mark and a letter. A mark in the original text is doubled, so that the two can be told apart.
_FORBIDDEN = [*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0xFFFE, 0xFFFF]
_MARK = "\ue000"
_STAND_INS: dict[int, str] = {ord(_MARK): _MARK * 2} | {
    code: _MARK + chr(ord(_MARK) + 1 + index) for index, code in enumerate(_FORBIDDEN)
}
_ORIGINALS = {stand_in: chr(code) for code, stand_in in _STAND_INS.items()}
_STAND_IN = re.compile(_MARK + ".")

# A construct without an end matches all the rest: another search from the next character on would
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


def read(data: bytes | None) -> Headers:
    """The headers in `data`, in their order, with the dispatch properties. Empty data: no headers.

    Raises `UnreadableHeadersError` for what the transport refuses: bytes that are not UTF-8, text
    that is not XML, a document type, another root element, a key twice, elements inside a key or a
    value; and for a reference to a surrogate. As in the transport, an entry without a key is left
    out.
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


def split(headers: Headers) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """The message's own headers, and the dispatch properties stored among them, unprefixed."""
    own = {name: headers[name] for name in headers if not name.startswith(PROPERTY_PREFIX)}
    properties = {
        name.removeprefix(PROPERTY_PREFIX): headers[name] for name in headers if name not in own
    }
    return own, properties


def write(headers: Headers) -> bytes:
    """`headers` as NServiceBus would write them. All line ends become LF, also CR and CR LF.

    On Windows NServiceBus writes CR LF, which is read back as LF.
    """
    if not headers:
        return f"{_BEGIN} />".encode()
    entries = [_entry(name, value) for name, value in headers.items()]
    return f"{_BEGIN}>{''.join(entries)}{_END_TAG}".encode()


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


def _entry(name: str, value: str | None) -> str:
    value_element = "" if value is None else _element("Value", value)
    return f"<HeaderInfo>{_element('Key', name)}{value_element}</HeaderInfo>"


def _element(tag: str, text: str) -> str:
    escaped = text.replace("\r\n", "\n").replace("\r", "\n").translate(_ESCAPES)
    return f"<{tag}>{escaped}</{tag}>" if text else f"<{tag} />"
