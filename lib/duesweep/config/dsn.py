"""Facts from the form of a dsn or URL: which database it is for, whether it has a password, and
whether its ports can be. No message quotes a port, since it may be a part of a password.
"""

import re
from collections.abc import Iterable, Iterator
from urllib.parse import parse_qs

_URL = re.compile(r"\s*postgres(ql)?://")
# The keywords of an ODBC string that name a server; libpq has none of them.
_ODBC = re.compile(
    r"(^|;)\s*(driver|server|addr|address|network address|dsn|filedsn)\s*=", re.IGNORECASE
)
# libpq's keywords are in lower case.
_CONNINFO = re.compile(r"\s*[a-z_]+\s*=")
_PASSWORD_IN_URL = re.compile(r"//[^@?]*:[^@?]+@")
_PASSWORD_IN_PAIRS = re.compile(
    r"(^|[.;?&\s])\s*(\w*password|pwd|\w*secret|\w*token)\s*=\s*[^\s;&]", re.IGNORECASE
)
PORT_PROBLEM = (
    "its port is not a number from 1 to 65535; correct it, and percent-encode each of "
    ": / @ ? # % [ ] in a URL's user name and password"
)
_MOST = 65_535
# As libpq reads it: user name and password end at the first @.
_HOSTS = re.compile(r"\s*\w+://(?:[^@/]*@)?(?P<hosts>[^/?]*)(?:/[^?]*)?(?:\?(?P<query>.*))?")
_JDBC = re.compile(r"\s*jdbc:\w+://(?P<hosts>[^/?;]*)")
# A port follows the last colon, unless that colon is inside the brackets of an IPv6 address.
_PORT = re.compile(r":([^\]:]*)$")
# These two begin with a keyword: another search from each of its characters would take quadratic
# time.
_CONNINFO_PAIR = re.compile(r"\b(\w+)\s*=\s*('(?:\\.|[^'\\])*'|(?:\\.|[^\s'\\])*)")
_ODBC_PAIR = re.compile(r"(?:\A|(?<=;))\s*([^=;]+?)\s*=\s*(\{(?:[^}]|\}\})*\}|[^;]*)")
_ODBC_SERVERS = {"server", "addr", "address", "network address"}


def dialect_of(dsn: str) -> str | None:
    """`postgresql` or `sqlserver`, None if the dsn has neither form."""
    if _URL.match(dsn):
        return "postgresql"
    if _ODBC.search(dsn):
        return "sqlserver"
    return "postgresql" if _CONNINFO.match(dsn) else None


def holds_password(dsn: str) -> bool:
    """Whether a dsn or URL has a password in it, or a token or another secret."""
    return bool(_PASSWORD_IN_URL.search(dsn) or _PASSWORD_IN_PAIRS.search(dsn))


def has_bad_port(dsn: str) -> bool:
    """Whether a dsn or a URL has a port that is not a number from 1 to 65535."""
    return any(map(_is_bad, _ports(dsn)))


def _ports(dsn: str) -> Iterator[str]:
    url = _JDBC.match(dsn) or _HOSTS.match(dsn)
    if url:
        found = map(_PORT.search, url["hosts"].split(","))
        yield from (port[1] for port in found if port)
        yield from _split(parse_qs(url.groupdict().get("query") or "").get("port", []))
    elif dialect_of(dsn) == "sqlserver":
        pairs = [(name.lower(), value.strip("{} ")) for name, value in _ODBC_PAIR.findall(dsn)]
        yield from (value.partition(",")[2] for name, value in pairs if name in _ODBC_SERVERS)
    else:
        yield from _split(v.strip("'") for name, v in _CONNINFO_PAIR.findall(dsn) if name == "port")


def _split(values: Iterable[str]) -> Iterator[str]:
    for value in values:
        yield from value.split(",")


def _is_bad(port: str) -> bool:
    # An empty port is the default port.
    text = port.strip()
    return bool(text) and not (text.isascii() and text.isdecimal() and 0 < int(text) <= _MOST)
