"""Whose a dsn is, by its form."""

import re

_URL = re.compile(r"\s*postgres(ql)?://")
# What leads to a server in an ODBC string; libpq has none of these words.
_ODBC = re.compile(
    r"(^|;)\s*(driver|server|addr|address|network address|dsn|filedsn)\s*=", re.IGNORECASE
)
# libpq's words are in small letters.
_CONNINFO = re.compile(r"\s*[a-z_]+\s*=")


def dialect_of(dsn: str) -> str | None:
    """The dialect of the server that a dsn leads to; None where it has the form of none."""
    if _URL.match(dsn):
        return "postgresql"
    if _ODBC.search(dsn):
        return "sqlserver"
    return "postgresql" if _CONNINFO.match(dsn) else None
