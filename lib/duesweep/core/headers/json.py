"""Headers as the SQL transports write them: one JSON object, string to string or null.

The format is that of NServiceBus's `DictionarySerializer` (System.Text.Json, with `/` written as
`\\/`). The delivered text is the stored text without one member. It is not parsed and written
again, so its order, nulls and escapes stay.
"""

import json
import re
from collections.abc import Collection
from json.decoder import scanstring  # type: ignore[attr-defined]

import msgspec

from duesweep.core.errors import UnreadableHeadersError
from duesweep.core.message import Headers

FORWARD_DESTINATION = "NServiceBus.SqlServer.ForwardDestination"

_FORWARD_NAME = f'"{FORWARD_DESTINATION}"'
_ASCII_ESCAPE = "\\u00"
_VALUE = re.compile(r'\s*:\s*(?:"[^"\\]*(?:\\.[^"\\]*)*"|null)\s*')
# As strict as .NET's serializer, and four times as fast as `json` and a look at each value.
_decoder = msgspec.json.Decoder(dict[str, str | None])
_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE = re.compile(r"[ \t\r\n]*")
_NON_ASCII = re.compile(r"[^\x00-\x7f]+")
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


def read(text: str | None) -> Headers:
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


def _find_fault(text: str) -> tuple[str, Exception | None]:
    """What is wrong with headers that were refused, and its cause. msgspec does not name the
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
    """`text` without its forward destination; the rest stays byte for byte. `read` must have
    accepted `text`.
    """
    # Inside a string the name's quotes would be escaped, with a backslash before the name. So in a
    # flat object `"name"` can only be the member's name, or a whole value. Unusual text is rebuilt
    # by members: the name twice, or perhaps in escapes, which for ASCII all begin with `\u00`.
    before, *others = text.split(_FORWARD_NAME)
    if len(others) != 1 or before[-1] not in "{," or _ASCII_ESCAPE in text:
        return remove(text, {FORWARD_DESTINATION})
    value = _VALUE.match(others[0])
    if value is None:
        return remove(text, {FORWARD_DESTINATION})
    after = others[0][value.end() :]
    if after.startswith(","):
        return before + after[1:]
    return before.removesuffix(",") + after


def remove(text: str, names: Collection[str]) -> str:
    """`text` without these headers; the others' texts stay. `read` must have accepted `text`.

    Takes texts that JSON allows but the transports never write: escaped or repeated names.
    """
    members = [member for name, member in _members(text) if name not in names]
    return "{" + ",".join(members) + "}"


def set_forward_destination(headers: Headers, destination: str | None) -> Headers:
    """`headers` with `destination` as the forward destination, at the end; None: without one."""
    others = {name: value for name, value in headers.items() if name != FORWARD_DESTINATION}
    return others if destination is None else others | {FORWARD_DESTINATION: destination}


def write(headers: Headers) -> str:
    """`headers` as NServiceBus would write them."""
    text = json.dumps(dict(headers), ensure_ascii=False, separators=(",", ":"))
    return _ASTRAL.sub(_surrogate_pair, text.replace("/", "\\/"))


def escape_non_ascii(text: str) -> str:
    """The same JSON in ASCII: for a column that holds the characters of one code page only."""
    return text if text.isascii() else _NON_ASCII.sub(_as_escape, text)


def _as_escape(character: re.Match[str]) -> str:
    return json.dumps(character[0])[1:-1]


def _surrogate_pair(character: re.Match[str]) -> str:
    units = character[0].encode("utf-16-be").hex().upper()
    return f"\\u{units[:4]}\\u{units[4:]}"


def _members(text: str) -> list[tuple[str, str]]:
    found = []
    at = text.index('"') if '"' in text else len(text)
    while at < len(text):
        name, end = scanstring(text, at + 1)
        end = text.index(":", end) + 1
        end = _SPACE.match(text, end).end()  # type: ignore[union-attr]
        if text[end] not in '"n':
            raise UnreadableHeadersError(f"A value of header {name!r} is neither text nor null")
        end = end + len("null") if text[end] == "n" else scanstring(text, end + 1)[1]
        found.append((name, text[at:end]))
        at = text.find('"', end)
        if at < 0:
            break
    return found
