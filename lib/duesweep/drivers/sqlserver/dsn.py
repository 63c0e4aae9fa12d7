"""Reads ODBC connection strings, completes them, and turns them into JDBC settings.

https://learn.microsoft.com/sql/connect/odbc/dsn-connection-string-attribute
https://learn.microsoft.com/sql/connect/jdbc/setting-the-connection-properties
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from duesweep.errors import ConfigError

_PAIR = re.compile(r"\s*([^=;{}]+?)\s*=\s*(\{(?:[^}]|\}\})*\}|[^;{}]*)\s*(?:;|$)")
_SAME = {
    "addr": "server",
    "address": "server",
    "network address": "server",
    "user id": "uid",
    "user": "uid",
    "password": "pwd",
    "initial catalog": "database",
}
_JDBC_ENCRYPT = {
    "yes": "true",
    "mandatory": "true",
    "true": "true",
    "no": "false",
    "optional": "false",
    "false": "false",
    "strict": "strict",
}
_TRUE = {"yes", "true", "1"}
_HOW_TO = (
    "write it as Driver={ODBC Driver 18 for SQL Server};Server=host,1433;Database=nsb;Uid=...;"
    "Pwd=..., with values that hold ; or braces in braces"
)


@dataclass(frozen=True, slots=True, repr=False)
class OdbcDsn:
    """An ODBC connection string as pairs. Names are in lower case; each synonym has one name."""

    pairs: dict[str, str]

    @classmethod
    def parse(cls, text: str) -> "OdbcDsn":
        """Read `text`. Raises `ConfigError` if it cannot be read or names no server."""
        pairs = dict(_pairs(text))
        if not {"server", "dsn", "filedsn"} & set(pairs):
            raise ConfigError("The dsn names no Server", advice=_HOW_TO)
        return cls(pairs)

    def __repr__(self) -> str:
        return f"OdbcDsn({self.server})"

    @property
    def server(self) -> str:
        """The server and the database, for messages."""
        database = self.pairs.get("database", "")
        return f"{self.pairs.get('server') or self.pairs.get('dsn')}/{database}"

    @property
    def port(self) -> int | None:
        """The server's port; None if the dsn does not have it, for example for a named instance."""
        _, _, port = _host(self.pairs.get("server", ""))
        return int(port) if port.isdecimal() and "server" in self.pairs else None

    @property
    def host(self) -> str:
        """The server's name or address, without the brackets of an IPv6 address."""
        host, _, _ = _host(self.pairs.get("server", ""))
        return host.strip("[]")

    def text(self, **more: str) -> str:
        """The connection string. `more` are defaults for names that it does not have."""
        defaults = {name.lower(): value for name, value in more.items()}
        return ";".join(f"{k}={_brace(v)}" for k, v in (defaults | self.pairs).items())

    def jdbc(self) -> tuple[str, dict[str, str]]:
        """The JDBC URL of the server, and the properties that follow from the connection string.

        Raises `ConfigError` for settings that JDBC does not have: then `store.jdbc_url` is needed.
        """
        pairs = self.pairs
        if "server" not in pairs or "authentication" in pairs:
            raise ConfigError(
                "The JDBC URL cannot be derived from a dsn with the setting DSN or Authentication",
                advice="give store.jdbc_url as well",
            )
        host, instance, port = _host(pairs["server"])
        url = f"jdbc:sqlserver://{host}" + (f":{port}" if port else "")
        properties = {
            "instanceName": "" if port else instance,
            "encrypt": _JDBC_ENCRYPT.get(pairs.get("encrypt", "yes").lower(), "true"),
            "trustServerCertificate": _jdbc_flag(pairs.get("trustservercertificate")),
            "hostNameInCertificate": pairs.get("hostnameincertificate", ""),
            "serverCertificate": pairs.get("servercertificate", ""),
        }
        if pairs.get("trusted_connection", "").lower() in _TRUE:
            properties |= {"integratedSecurity": "true", "authenticationScheme": "JavaKerberos"}
        return url, self.credentials() | {k: v for k, v in properties.items() if v}

    def credentials(self) -> dict[str, str]:
        """User and password, under JDBC's names."""
        found = {"user": self.pairs.get("uid", ""), "password": self.pairs.get("pwd", "")}
        return {name: value for name, value in found.items() if value}


def database_of(dsn: str) -> str:
    """The database that `dsn` names; `ConfigError` where it names none."""
    database = OdbcDsn.parse(dsn).pairs.get("database")
    if not database:
        raise ConfigError("The dsn names no Database", advice=_HOW_TO)
    return database


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    # The error does not quote the text: it may hold the password.
    at, text = 0, text.strip().rstrip(";")
    while at < len(text):
        found = _PAIR.match(text, at)
        if found is None:
            raise ConfigError("The dsn cannot be read as an ODBC connection string", advice=_HOW_TO)
        name, value = found[1].lower(), found[2].strip()
        if value.startswith("{"):
            value = value[1:-1].replace("}}", "}")
        yield _SAME.get(name, name), value
        at = found.end()


def _brace(value: str) -> str:
    is_plain = not re.search(r"[\[\]{}(),;?*=!@\\ ]", value)
    return value if is_plain else "{" + value.replace("}", "}}") + "}"


def _host(server: str) -> tuple[str, str, str]:
    """Host, instance and port of `tcp:host\\instance,port`."""
    address, _, port = server.removeprefix("tcp:").partition(",")
    host, _, instance = address.partition("\\")
    host = host.strip() if host.strip() not in {".", "(local)"} else "localhost"
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return host, instance.strip(), port.strip() or ("" if instance else "1433")


def _jdbc_flag(value: str | None) -> str:
    return "" if value is None else str(value.lower() in _TRUE).lower()
