"""What the form of a dsn or URL tells: which database it is for, and whether it has a password."""

import re

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
