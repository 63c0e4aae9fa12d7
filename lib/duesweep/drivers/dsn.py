"""Connection texts of databases in every grammar: which database a dsn is for, whether it holds a
password, and the same dsn as the driver takes it. urls.py has the texts of brokers.

Users of NServiceBus have .NET connection strings. Read by another driver, such a text makes its
password a part of the host's or the database's name, which errors show. So the configuration and
every connection read it here first. No error quotes any part of it but a keyword that is known.

https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING
https://www.npgsql.org/doc/connection-string-parameters.html
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import quote, unquote

from duesweep.core.errors import Problem

LIBPQ_URL = re.compile(r"\s*postgres(ql)?://")
# The keywords of an ODBC string, or of SqlClient's, that name a server; libpq has none of them.
_ODBC = re.compile(
    r"(^|;)\s*(driver|server|addr|address|network address|data source|dsn|filedsn)\s*=",
    re.IGNORECASE,
)
# libpq's keywords are in lower case.
_CONNINFO = re.compile(r"\s*[a-z_]+\s*=")
_PASSWORD_IN_URL = re.compile(r"//[^@?]*:[^@?]+@")
_PASSWORD_IN_PAIRS = re.compile(
    r"(^|[.,;?&\s])\s*(\w*password|pwd|psw|\w*passphrase|\w*secret|\w*token|accountkey"
    r"|sharedaccesskey|sig)\s*=\s*[^\s;&]",
    re.IGNORECASE,
)
LAST_PORT = 65_535
_CONNINFO_PAIR = re.compile(
    r"\s*(\w+)\s*=\s*('(?:\\.|[^'\\])*'|(?:\\.|[^\s'\\])(?:\\.|[^\s\\])*|\Z)\s*", re.DOTALL
)
_ODBC_PAIR = re.compile(r"(?:\A|(?<=;))\s*([^=;]+?)\s*=\s*(\{(?:[^}]|\}\})*\}|[^;]*)")
# tcp:host, host\\instance and host,port.
_SQL_SERVERS = re.compile(r"^\s*[a-z]+:|\\|,\s*\d+\s*$|^\s*(\.|\(local\w*\))\s*$", re.IGNORECASE)
# .NET's DbConnectionStringBuilder: a value in quotes has each of these quotes twice.
_NET_PAIR = re.compile(
    r"""[\s;]*(?P<key>[^=;]+)=\s*
    (?:"(?P<double>(?:[^"]|"")*)"\s*|'(?P<single>(?:[^']|'')*)'\s*|(?P<plain>(?!["'])[^;]*))
    (?:;|\Z)""",
    re.VERBOSE,
)
_QUOTES = (("double", '"'), ("single", "'"))
_LONGEST_LABEL, _LONGEST_HOST = 63, 253
_LABEL = re.compile(r"[\w-]+")
# They separate options in this grammar or in another one.
_SEPARATORS = re.compile(r"[;=\s]")
# Keywords whose values are paths: libpq's, then .NET's and ODBC's, canonical.
_PATHS = {
    *("sslcert", "sslkey", "sslrootcert", "sslcrl", "sslcrldir", "sslkeylogfile", "passfile"),
    "servicefile",
    *("sslcertificate", "rootcertificate", "servercertificate"),
}
_URL_PAIR = re.compile(r"[?&](\w+)=([^&#]*)")
# libpq's name for the authorities of this machine.
OF_THE_MACHINE = "system"
HOW_TO_LIBPQ = (
    "write it as postgresql://user@host:5432/database, with % and other special characters "
    "percent-encoded, or as keyword=value pairs"
)
# Npgsql's keywords, as people know them, with libpq's for them.
_NPGSQL_TRANSLATED = {
    **dict.fromkeys(("Host", "Server"), "host"),
    "Port": "port",
    **dict.fromkeys(("Database", "DB"), "dbname"),
    **dict.fromkeys(("Username", "User Name", "User Id", "UID"), "user"),
    **dict.fromkeys(("Password", "PSW", "PWD"), "password"),
    "Passfile": "passfile",
    "SSL Mode": "sslmode",
    "SSL Negotiation": "sslnegotiation",
    "SSL Certificate": "sslcert",
    "SSL Key": "sslkey",
    "SSL Password": "sslpassword",
    "Root Certificate": "sslrootcert",
    "GSS Encryption Mode": "gssencmode",
    **dict.fromkeys(("Kerberos Service Name", "Krbsrvname"), "krbsrvname"),
    "Channel Binding": "channel_binding",
    "Target Session Attributes": "target_session_attrs",
    "Options": "options",
}
# Options about the .NET process, or that duesweep decides for its own sessions.
_NPGSQL_UNUSED = {
    *("Application Name", "Enlist", "Pooling", "Minimum Pool Size", "MinPoolSize"),
    *("Maximum Pool Size", "MaxPoolSize", "Connection Idle Lifetime", "Connection Lifetime"),
    *("Connection Pruning Interval", "Load Balance Timeout", "Load Balance Hosts"),
    *("Host Recheck Seconds", "Timeout", "Command Timeout", "Internal Command Timeout"),
    *("Cancellation Timeout", "Keepalive", "TCP Keepalive", "TCP Keepalive Time"),
    *("TCP Keepalive Interval", "Read Buffer Size", "Write Buffer Size", "Multiplexing"),
    *("Socket Receive Buffer Size", "Socket Send Buffer Size", "Max Auto Prepare"),
    *("Auto Prepare Min Usages", "No Reset On Close", "Write Coalescing Buffer Threshold Bytes"),
    *("Array Nullability Mode", "Load Table Composites", "Convert Infinity DateTime"),
    *("Persist Security Info", "Log Parameters", "Include Error Detail", "Include Error Details"),
    *("Use Perf Counters", "Client Encoding", "Encoding", "Trust Server Certificate"),
}
# What to do about options that libpq does not have, or that mean the endpoint's own sessions.
_NPGSQL_REFUSED = {
    "Timezone": "remove it, and set store.writer_time_zone to its value",
    "Search Path": "remove it, and set store.schema",
    **dict.fromkeys(
        (
            *("Check Certificate Revocation", "Include Realm", "Integrated Security"),
            *("Require Auth", "Server Compatibility Mode", "Replication Mode", "Protocol", "SSL"),
        ),
        "remove it",
    ),
}
# libpq's values, without - as Npgsql mostly writes them.
_CHOICES = {
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "sslnegotiation": ("postgres", "direct"),
    "gssencmode": ("disable", "prefer", "require"),
    "channel_binding": ("disable", "prefer", "require"),
    "target_session_attrs": (
        *("any", "primary", "standby", "prefer-standby", "read-write", "read-only"),
    ),
}
_NO = {"false", "no", "0", ""}


def _canonical(keyword: str) -> str:
    """A keyword of .NET, whatever its case: most have a form with spaces and one without."""
    return re.sub(r"\s", "", keyword).lower()


class DsnError(ValueError):
    """A dsn or URL that cannot be used. Its problem is the rest of a sentence about it."""

    def __init__(self, text: str, advice: str) -> None:
        self.problem = Problem(text, advice)
        super().__init__(str(self.problem))


class Value(NamedTuple):
    """The value of an option. `bare` is the part of it that is neither quoted nor encoded."""

    text: str
    bare: str

    def is_misread(self, *, is_free: bool = False) -> bool:
        """Whether it holds options of another grammar, as the database `nsb;password=...` does.
        Errors of drivers would show it. Only a value that `is_free` may hold a bare `=`.
        """
        signs = ";" if is_free else ";="
        return bool(set(signs) & set(self.bare)) or holds_password(self.text)


class Keywords(NamedTuple):
    """A grammar's keywords by their canonical form, and what to do about each refused one."""

    known: Mapping[str, str]
    refused: Mapping[str, str]

    @classmethod
    def of(
        cls, translated: Iterable[str], unused: Iterable[str], refused: Mapping[str, str]
    ) -> "Keywords":
        """The keywords of a grammar, as people know them."""
        return cls({_canonical(name): name for name in (*translated, *unused, *refused)}, refused)

    def name(self, number: int, pair: tuple[str, Value]) -> str:
        """The name of an option. Raises `DsnError` for one that is unknown, without its keyword,
        which may be a part of a password, and for a refused one that is not switched off.
        """
        key, value = pair
        name = self.known.get(_canonical(key))
        if name is None:
            raise DsnError(
                f"its option {number} is unknown",
                "correct it, and put a value that holds ; into double quotes",
            )
        if name in self.refused and value.text.lower() not in _NO:
            raise DsnError(f"its option {name} cannot be used here", self.refused[name])
        return name


_NPGSQL = Keywords.of(_NPGSQL_TRANSLATED, _NPGSQL_UNUSED, _NPGSQL_REFUSED)
# SQL Server's drivers have none of these.
_NPGSQL_ONLY = {"host", "port", "username", "sslmode", "rootcertificate", "searchpath", "passfile"}


def is_postgresql(dsn: str) -> bool:
    """Whether a dsn is a URL or keywords of PostgreSQL, or Npgsql's connection string."""
    if _ODBC.search(dsn) and not LIBPQ_URL.match(dsn):
        return not is_sql_server(dsn)
    return is_libpqs(dsn) or is_npgsql(dsn)


def is_libpqs(dsn: str) -> bool:
    """Whether a dsn begins as libpq's do: a URL, or a keyword."""
    return bool(LIBPQ_URL.match(dsn) or _CONNINFO.match(dsn))


def is_sql_server(dsn: str) -> bool:
    """Whether a dsn is an ODBC string or SqlClient's connection string. A text that both Npgsql and
    SqlClient would take is SQL Server's.
    """
    if LIBPQ_URL.match(dsn) or not _ODBC.search(dsn):
        return False
    keywords = {_canonical(key) for key, _ in net_pairs(dsn) or ()}
    return not (fits_npgsql(dsn) and keywords & _NPGSQL_ONLY)


def fits_npgsql(dsn: str) -> bool:
    """Whether Npgsql knows all its keywords, one of them a user, and its host is not written as SQL
    Server's.
    """
    pairs = net_pairs(dsn) or ()
    hosts = [value.text for key, value in pairs if _canonical(key) in {"host", "server"}]
    if not pairs or any(map(_SQL_SERVERS.search, hosts)):
        return False
    names = [_NPGSQL.known.get(_canonical(key)) for key, _ in pairs]
    return None not in names and any(_NPGSQL_TRANSLATED.get(str(n)) == "user" for n in names)


def holds_password(dsn: str) -> bool:
    """Whether a dsn or URL has a password in it, or a token or another secret."""
    return bool(_PASSWORD_IN_URL.search(dsn) or _PASSWORD_IN_PAIRS.search(dsn))


def is_port(text: str) -> bool:
    """Whether a server may have this port. An empty one is the default port."""
    port = text.strip()
    return not port or (port.isascii() and port.isdecimal() and 0 < int(port) <= LAST_PORT)


def check_port(port: str) -> None:
    """Raise `DsnError` for a port that no server has."""
    if not is_port(port):
        raise DsnError(
            f"its port is not a number from 1 to {LAST_PORT}",
            "correct it, and percent-encode each of : / @ ? # % [ ] in a URL's user name and "
            "password",
        )


def net_pairs(text: str) -> list[tuple[str, Value]] | None:
    """The keywords and values of a .NET connection string, in their order; None: it is none."""
    pairs, at, text = [], 0, text.strip().rstrip("; ")
    while at < len(text):
        found = _NET_PAIR.match(text, at)
        if found is None:
            return None
        plain = (found["plain"] or "").strip()
        quoted = [found[name] and found[name].replace(mark * 2, mark) for name, mark in _QUOTES]
        value = Value(next(filter(None, quoted), plain), plain)
        pairs.append((found["key"].strip(), value))
        at = found.end()
    return pairs


def begin_at(folder: str, dsn: str) -> str:
    """The dsn, of any grammar, with relative paths of files that begin at this folder."""
    if LIBPQ_URL.match(dsn):
        pattern, escaped = _URL_PAIR, quote(folder)
    elif is_sql_server(dsn):
        # A folder whose name has a sign of the grammar needs an absolute path.
        pattern, escaped = (_ODBC_PAIR if "{" in dsn else _NET_PAIR), folder
    elif is_npgsql(dsn):
        pattern, escaped = _NET_PAIR, folder
    else:
        pattern, escaped = _CONNINFO_PAIR, re.sub(r"([\s'\\])", r"\\\1", folder)
    return pattern.sub(lambda pair: _with_folder(pair, escaped), dsn)


def _with_folder(pair: re.Match[str], folder: str) -> str:
    """A pair of keyword and value, whose path begins at a folder, unless it names no relative one.
    The value is the last group that took part.
    """
    assert pair.lastindex is not None
    text, start = pair[0], pair.start(pair.lastindex) - pair.start()
    # A quote is of the grammar.
    start += text[start : start + 1] in {"'", "{"}
    value = text[start:].rstrip("'};& ")
    is_rooted = unquote(value).startswith(("/", "~")) or ":" in value or value == OF_THE_MACHINE
    if _canonical(pair[1]) not in _PATHS or not value or is_rooted:
        return text
    return f"{text[:start]}{folder}/{text[start:]}"


def check_host(host: str) -> None:
    """Raise `DsnError` unless this can be the name or the address of a host."""
    if _SEPARATORS.search(host):
        raise DsnError("its host holds ; or = or white space", "correct it")
    with suppress(ValueError):
        ip_address(host.strip("[]").partition("%")[0])
        return
    labels = host.removesuffix(".").split(".")
    if not all(map(_LABEL.fullmatch, labels)):
        raise DsnError(
            "its host has an empty part, or a character that no host's name has", "correct it"
        )
    try:
        encoded = [label.encode("ascii" if label.isascii() else "idna") for label in labels]
    except UnicodeError:
        encoded = [b"-" * (_LONGEST_LABEL + 1)]
    if max(map(len, encoded)) > _LONGEST_LABEL or len(b".".join(encoded)) > _LONGEST_HOST:
        raise DsnError(
            f"its host is longer than {_LONGEST_HOST} characters, or a part of it than "
            f"{_LONGEST_LABEL}",
            "correct it",
        )


def decoded(text: str) -> Value:
    """A part of a URL."""
    return Value(unquote(text), re.sub("%[0-9A-Fa-f]{2}", "", text))


def is_npgsql(dsn: str) -> bool:
    """Whether libpq would not understand it, and Npgsql would. A single ; may be a password's."""
    if LIBPQ_URL.match(dsn):
        return False
    pairs = net_pairs(dsn) or ()
    if not {"host", "server"} & {_canonical(key) for key, _ in pairs}:
        return False
    known = [key for key, _ in pairs if _canonical(key) in _NPGSQL.known]
    if len(pairs) == 1:
        is_libpqs = _CONNINFO.match(dsn) and not dsn.rstrip().endswith(";")
        return bool(known) and not is_libpqs
    return len(known) > 1


def npgsql_values(dsn: str) -> dict[str, Value]:
    """Npgsql's options under libpq's keywords. Raises `DsnError` for one without a translation."""
    found: dict[str, Value] = {}
    for number, (key, value) in enumerate(net_pairs(dsn) or (), 1):
        name = _NPGSQL.name(number, (key, value))
        keyword = _NPGSQL_TRANSLATED.get(name)
        if keyword is None or not value.text:
            continue
        found[keyword] = value
        if keyword in _CHOICES:
            found[keyword] = Value(choice(name, value.text, _CHOICES[keyword]), "")
    if "host" not in found:
        raise DsnError("it names no Host", HOW_TO_LIBPQ)
    if "sslcert" in found and "sslkey" not in found:
        raise DsnError("it has an SSL Certificate without an SSL Key", "give both, in PEM")
    port = found.pop("port").text if "port" in found else "5432"
    hosts, ports = zip(
        *(host_and_port(host.strip(), port) for host in found["host"].text.split(",")), strict=True
    )
    return found | {"host": Value(",".join(hosts), ""), "port": Value(",".join(ports), "")}


def choice(name: str, value: str, choices: Iterable[str]) -> str:
    """The choice that an option names, with or without hyphens; `DsnError` for none."""
    for choice in choices:
        if choice.replace("-", "") == value.lower().replace("-", ""):
            return choice
    raise DsnError(f"its {name} is none of {', '.join(choices)}", "correct it")


def host_and_port(text: str, default: str) -> tuple[str, str]:
    """Host and port of `host:port`; of an IPv6 address, only behind brackets. Raises `DsnError` for
    a port that cannot be.
    """
    host, _, port = text.rpartition(":")
    if not host or text.startswith("/") or (":" in host and not host.endswith("]")):
        host, port = text, default
    check_port(port)
    return host.strip("[]"), port
