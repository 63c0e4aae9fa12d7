"""Ports in dsns and URLs. No message quotes one, since it may be a part of a password."""

import re
from collections.abc import Iterable, Iterator
from urllib.parse import parse_qs

from duesweep.config.dsn import dialect_of

PROBLEM = (
    "its port is not a number from 1 to 65535; correct it, and percent-encode each of "
    ": / @ ? # % [ ] in a URL's user name and password"
)
_MOST = 65_535
# As libpq reads it: user name and password end at the first @.
_URL = re.compile(r"\s*\w+://(?:[^@/]*@)?(?P<hosts>[^/?]*)(?:/[^?]*)?(?:\?(?P<query>.*))?")
_JDBC = re.compile(r"\s*jdbc:\w+://(?P<hosts>[^/?;]*)")
# A port follows the last colon, unless that colon is inside the brackets of an IPv6 address.
_PORT = re.compile(r":([^\]:]*)$")
# These two begin with a keyword: another search from each of its characters would take quadratic
# time.
_CONNINFO = re.compile(r"\b(\w+)\s*=\s*('(?:\\.|[^'\\])*'|(?:\\.|[^\s'\\])*)")
_ODBC = re.compile(r"(?:\A|(?<=;))\s*([^=;]+?)\s*=\s*(\{(?:[^}]|\}\})*\}|[^;]*)")
_ODBC_SERVERS = {"server", "addr", "address", "network address"}


def has_bad_port(dsn: str) -> bool:
    """Whether a dsn or a URL has a port that is not a number from 1 to 65535."""
    return any(map(_is_bad, _ports(dsn)))


def _ports(dsn: str) -> Iterator[str]:
    url = _JDBC.match(dsn) or _URL.match(dsn)
    if url:
        found = map(_PORT.search, url["hosts"].split(","))
        yield from (port[1] for port in found if port)
        yield from _split(parse_qs(url.groupdict().get("query") or "").get("port", []))
    elif dialect_of(dsn) == "sqlserver":
        pairs = [(name.lower(), value.strip("{} ")) for name, value in _ODBC.findall(dsn)]
        yield from (value.partition(",")[2] for name, value in pairs if name in _ODBC_SERVERS)
    else:
        yield from _split(v.strip("'") for name, v in _CONNINFO.findall(dsn) if name == "port")


def _split(values: Iterable[str]) -> Iterator[str]:
    for value in values:
        yield from value.split(",")


def _is_bad(port: str) -> bool:
    # An empty port is the default port.
    text = port.strip()
    return bool(text) and not (text.isascii() and text.isdecimal() and 0 < int(text) <= _MOST)
