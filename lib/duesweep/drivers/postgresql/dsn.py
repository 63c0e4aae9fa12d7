"""A dsn as libpq takes it: a URL, keyword=value pairs, or Npgsql's connection string, translated.

https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from duesweep.drivers.dsn import (
    HOW_TO_LIBPQ,
    LIBPQ_URL,
    DsnError,
    Value,
    check_host,
    check_port,
    is_libpqs,
    is_npgsql,
    npgsql_values,
)

# PostgreSQL cuts longer ones, and opens a session as another user, or with another database.
_CUT, _LONGEST_NAME = {"dbname", "user"}, 63
# libpq's settings whose values may hold = or white space.
_FREE = {"options", "application_name", "fallback_application_name", "passfile", "servicefile"}
_FILES = ("sslcert", "sslkey", "sslrootcert", "sslcrl")
_SECRETS = {"password", "sslpassword", "oauth_client_secret"}
# Without the password and the options.
_URL_WITH_SPACE = re.compile(r"\s*\w+://([^:@/?]*\s|([^@/?]*@)?[^@?]*\s)", re.DOTALL)
_SHOWN = {"host": "its host", "dbname": "its database", "user": "its user"}


@lru_cache(maxsize=64)
def for_libpq(dsn: str) -> str:
    """The dsn as libpq takes it.

    Raises `DsnError` for a dsn of another grammar, and for one that libpq would misread.
    """
    # The configuration of another store does without.
    import psycopg  # noqa: PLC0415
    from psycopg.conninfo import conninfo_to_dict, make_conninfo  # noqa: PLC0415

    if is_npgsql(dsn):
        translated = npgsql_values(dsn)
        check_libpq(translated)
        return make_conninfo(**{keyword: value.text for keyword, value in translated.items()})
    if not is_libpqs(dsn):
        raise DsnError("it is neither a URL of PostgreSQL nor keyword=value pairs", HOW_TO_LIBPQ)
    if _URL_WITH_SPACE.match(dsn):
        # The end of a line, perhaps, of a file that holds the secret.
        raise DsnError("its user, host or database holds white space", HOW_TO_LIBPQ)
    try:
        found = conninfo_to_dict(dsn)
    except (psycopg.ProgrammingError, UnicodeDecodeError):
        # Without libpq's text, which may hold the password, and not in a stack trace either.
        raise DsnError("it cannot be read", HOW_TO_LIBPQ) from None
    texts = {keyword: str(value) for keyword, value in found.items()}
    values = {
        # It is bare if the dsn has it neither quoted nor encoded.
        keyword: Value(text, text if text in dsn and f"'{text}'" not in dsn else "")
        for keyword, text in texts.items()
    }
    shown = [values[keyword].bare for keyword in ("user", "dbname") if keyword in values]
    # An abstract socket begins with one.
    shown += [host.removeprefix("@") for host in texts.get("host", "").split(",")]
    if LIBPQ_URL.match(dsn) and any("@" in text for text in shown):
        # Of a password that is not encoded, libpq takes the end for the host or the database.
        raise DsnError("it cannot be read", HOW_TO_LIBPQ)
    check_libpq(values)
    return dsn


def check_libpq(values: Mapping[str, Value]) -> None:
    """Raise `DsnError` for a value that libpq would misread, for a host that cannot be one, and for
    a port that no server has.
    """
    for keyword, value in values.items():
        is_free = keyword in _FREE or keyword.startswith(_FILES)
        if keyword not in _SECRETS and value.is_misread(is_free=is_free):
            # An unknown keyword may be a part of a password.
            name = _SHOWN.get(keyword, "an option of it")
            raise DsnError(f"{name} holds ; or =", HOW_TO_LIBPQ)
        if keyword in _CUT and len(value.text.encode("utf-8", "replace")) > _LONGEST_NAME:
            raise DsnError(
                f"{_SHOWN[keyword]} has a name over {_LONGEST_NAME} bytes, which servers cut",
                "correct it",
            )
    for port in values["port"].text.split(",") if "port" in values else ():
        check_port(port)
    for host in values["host"].text.split(",") if "host" in values else ():
        # Else it is a folder of sockets, or an abstract socket.
        if host and not host.startswith(("/", "@")):
            check_host(host)
