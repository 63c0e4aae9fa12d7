"""Which database a dsn is for, by its form."""

import re

_URL = re.compile(r"\s*postgres(ql)?://")
# The keywords of an ODBC string that name a server; libpq has none of them.
_ODBC = re.compile(
    r"(^|;)\s*(driver|server|addr|address|network address|dsn|filedsn)\s*=", re.IGNORECASE
)
# libpq's keywords are in lower case.
_CONNINFO = re.compile(r"\s*[a-z_]+\s*=")


def dialect_of(dsn: str) -> str | None:
    """`postgresql` or `sqlserver`, None if the dsn has neither form."""
    if _URL.match(dsn):
        return "postgresql"
    if _ODBC.search(dsn):
        return "sqlserver"
    return "postgresql" if _CONNINFO.match(dsn) else None
