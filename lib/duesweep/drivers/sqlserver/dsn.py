"""ODBC connection strings: read, completed, and turned into JDBC settings; and the ODBC driver that
they need on this machine: pyodbc, loaded late, and Microsoft's driver.

https://learn.microsoft.com/sql/connect/odbc/dsn-connection-string-attribute
https://learn.microsoft.com/sql/connect/jdbc/setting-the-connection-properties
"""

import ctypes
import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from duesweep.core.errors import ConfigError, OdbcDriverError
from duesweep.drivers.dsn import (
    LAST_PORT,
    DsnError,
    Value,
    check_host,
    holds_password,
    is_port,
    net_pairs,
)

_PAIR = re.compile(r"[\s;]*([^=;{}]+?)\s*=\s*(\{(?:[^}]|\}\})*\}|[^;{}]*)\s*(?:;|$)")
_SAME = {
    **dict.fromkeys(("addr", "address", "network address", "data source"), "server"),
    **dict.fromkeys(("user id", "userid", "user"), "uid"),
    "password": "pwd",
    "initial catalog": "database",
    "integrated security": "trusted_connection",
    "trust server certificate": "trustservercertificate",
    "host name in certificate": "hostnameincertificate",
    "server certificate": "servercertificate",
    "workstation id": "wsid",
    "application intent": "applicationintent",
    "multi subnet failover": "multisubnetfailover",
    "failover partner": "failover_partner",
    "current language": "language",
}
# SqlClient's options about its process, or that duesweep decides for its own sessions.
_UNUSED = {
    *("pooling", "min pool size", "max pool size", "connection lifetime", "load balance timeout"),
    *("connection reset", "pool blocking period", "poolblockingperiod", "enlist", "timeout"),
    *("connect timeout", "connection timeout", "command timeout", "persist security info"),
    *("persistsecurityinfo", "connect retry count", "connect retry interval", "replication"),
    *("type system version", "packet size", "transaction binding", "asynchronous processing"),
    *("async", "network library", "multiple active result sets", "multipleactiveresultsets"),
    "application name",
}
# SqlClient's options that ODBC does not have.
_REFUSED = {
    *("attachdbfilename", "extended properties", "initial file name", "context connection"),
    *("user instance", "column encryption setting", "enclave attestation url"),
    *("attestation protocol", "ip address preference", "ipaddresspreference", "server spn"),
    "failover partner spn",
}
# ODBC strings have none of these.
_SQL_CLIENTS = (_SAME.keys() | _UNUSED | _REFUSED) - {"addr", "address", "network address"}
_FLAGS = {"encrypt", "trustservercertificate", "trusted_connection", "multisubnetfailover"}
_AS_ODBC = {"true": "yes", "false": "no", "sspi": "yes"}
# Named pipes, shared memory, and LocalDB.
_NO_TCP = re.compile(r"(np|lpc|admin):|\\\\|\(localdb\)", re.IGNORECASE)
_JDBC_URL = re.compile(
    r"jdbc:sqlserver://(?P<host>\[[^\]]*\]|[^\\:;,/]*)(\\(?P<instance>[^:;/]*))?(:(?P<port>[^/]*))?/?",
    re.IGNORECASE,
)
# Spark shows all properties but passwords.
_SHOWN_PROPERTIES = {"user", "username", "servername", "databasename", "database", "instancename"}
_JDBC_ENCRYPT = {
    "yes": "true",
    "mandatory": "true",
    "no": "false",
    "optional": "false",
    "strict": "strict",
}
_JDBC_FLAG = {"yes": "true", "no": "false"}
# Microsoft's ODBC driver refuses other values as if the server were out of reach.
_CHOICES = {
    "encrypt": _JDBC_ENCRYPT,
    "trustservercertificate": _JDBC_FLAG,
    "trusted_connection": _JDBC_FLAG,
}
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
        pairs = _sql_client_pairs(text) or dict(_pairs(text))
        if not {"server", "dsn", "filedsn"} & set(pairs):
            raise ConfigError("The dsn names no Server", advice=_HOW_TO)
        for name, choices in _CHOICES.items():
            if pairs.get(name, "no").lower() not in choices:
                raise ConfigError(
                    f"The dsn's {name} is none of {', '.join(choices)}", advice="correct it"
                )
        _check_server(pairs.get("server", ""))
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
            "encrypt": _JDBC_ENCRYPT[pairs.get("encrypt", "yes").lower()],
            "trustServerCertificate": _JDBC_FLAG.get(
                pairs.get("trustservercertificate", "").lower(), ""
            ),
            "hostNameInCertificate": pairs.get("hostnameincertificate", ""),
            "serverCertificate": pairs.get("servercertificate", ""),
        }
        if pairs.get("trusted_connection", "").lower() == "yes":
            properties |= {"integratedSecurity": "true", "authenticationScheme": "JavaKerberos"}
        return url, self.credentials() | {k: v for k, v in properties.items() if v}

    def credentials(self) -> dict[str, str]:
        """User and password, under JDBC's names."""
        found = {"user": self.pairs.get("uid", ""), "password": self.pairs.get("pwd", "")}
        return {name: value for name, value in found.items() if value}


def _sql_client_pairs(text: str) -> dict[str, str] | None:
    """The connection string of .NET's SqlClient as ODBC's pairs; None: it is none. Raises
    `ConfigError` for an option that ODBC does not have.
    """
    written = [(re.sub(r"\s+", " ", key).lower(), value) for key, value in net_pairs(text) or ()]
    names = {name for name, _ in written}
    if names & {"driver", "dsn", "filedsn"} or not names & _SQL_CLIENTS or "{" in text:
        return None
    pairs: dict[str, str] = {}
    for name, value in written:
        if name in _REFUSED and value.text.lower() not in {"", "false", "no"}:
            raise ConfigError(f"The dsn's option {name} cannot be used here", advice="remove it")
        if name not in _UNUSED | _REFUSED and value.text:
            own = _SAME.get(name, name)
            _refuse_misread(own, value)
            flag = _AS_ODBC.get(value.text.lower(), value.text)
            pairs[own] = flag if own in _FLAGS else value.text
    if "authentication" in pairs:
        pairs["authentication"] = pairs["authentication"].replace(" ", "")
    return pairs


def _refuse_misread(name: str, value: Value) -> None:
    """Raise `ConfigError` for a value with a part of another grammar that errors show."""
    shown = {"server": "Server", "uid": "user", "database": "Database"}.get(name)
    if shown is not None and value.is_misread():
        raise ConfigError(f"The dsn's {shown} holds ; or =", advice=_HOW_TO)


def _check_server(server: str) -> None:
    """Raise `ConfigError` unless this can be the name of a server, or is not reached over TCP."""
    host, instance, port = _host(server)
    _check_port("The dsn", port)
    if server and not _NO_TCP.match(server):
        try:
            check_host(host)
            check_host(instance.replace("$", "-") or host)
        except DsnError:
            raise ConfigError("The dsn's Server is not a host's name", advice=_HOW_TO) from None


def _check_port(setting: str, port: str) -> None:
    """Raise `ConfigError` for a port in this setting that no server has."""
    if not is_port(port):
        raise ConfigError(
            f"{setting} has a port that is not a number from 1 to {LAST_PORT}", advice="correct it"
        )


def split_jdbc_url(text: str) -> tuple[str, dict[str, str]]:
    """A JDBC URL without its settings, and these as properties: Spark shows URLs, but no passwords
    in properties. Raises `ConfigError` if it cannot be read.
    """
    url, _, settings = text.strip().partition(";")
    found = _JDBC_URL.fullmatch(url.strip())
    try:
        check_host((found and found["host"]) or "localhost")
    except DsnError:
        found = None
    if found is None:
        raise ConfigError(
            "store.jdbc_url is not a URL of SQL Server's JDBC driver",
            advice="write it as jdbc:sqlserver://host:1433;databaseName=nsb",
        )
    _check_port("store.jdbc_url", found["port"] or "")
    try:
        given = {name: _unbrace(value) for name, value in _written_pairs(settings)}
        shown = [value for name, value in given.items() if name.lower() in _SHOWN_PROPERTIES]
        if any(map(holds_password, shown)):
            raise ConfigError("A setting holds a password")
    except ConfigError:
        raise ConfigError(
            "store.jdbc_url has settings that cannot be read",
            advice="write them as ;name=value, with values that hold ; or braces in braces",
        ) from None
    return url, given


def database_of(dsn: str) -> str:
    """The database that `dsn` names; `ConfigError` where it names none."""
    database = OdbcDsn.parse(dsn).pairs.get("database")
    if not database:
        raise ConfigError("The dsn names no Database", advice=_HOW_TO)
    return database


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for written, value in _written_pairs(text):
        name = _SAME.get(written.lower(), written.lower())
        _refuse_misread(name, Value(_unbrace(value), "" if value.startswith("{") else value))
        yield name, _unbrace(value)


def _written_pairs(text: str) -> Iterator[tuple[str, str]]:
    # The error does not quote the text: it may hold the password.
    at, text = 0, text.strip().rstrip("; ")
    while at < len(text):
        found = _PAIR.match(text, at)
        if found is None:
            raise ConfigError("The dsn cannot be read as an ODBC connection string", advice=_HOW_TO)
        yield found[1], found[2].strip()
        at = found.end()


def _unbrace(value: str) -> str:
    return value[1:-1].replace("}}", "}") if value.startswith("{") else value


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


INSTALL = (
    "install unixODBC and Kerberos (Debian, Ubuntu: apt-get install libodbc2 libgssapi-krb5-2; "
    "without root, in a checkout: scripts/services.py odbc)"
)
# Filled by scripts/services.py; only a checkout has it.
_UNPACKED = Path(__file__).parents[4] / ".cache" / "services" / "odbc"


@cache
def odbc() -> Any:
    """The module pyodbc, with the shared libraries that it and Microsoft's driver need.

    Called where a session is opened: all else of this package works without these libraries.
    Raises `OdbcDriverError` if one is missing.
    """
    # This machine's libraries come first; a driver is often built for just these.
    load_missing(_UNPACKED)
    try:
        import pyodbc  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise OdbcDriverError(
            "pyodbc is not installed", advice="install duesweep[sqlserver]"
        ) from error
    except ImportError as error:
        raise OdbcDriverError(f"pyodbc cannot be loaded: {error}", advice=INSTALL) from error
    # unixODBC has one pool for the process: a forked worker would share its parent's connections.
    pyodbc.pooling = False
    return pyodbc


def load_missing(folder: Path) -> None:
    """Load the shared libraries of unpacked packages that this machine does not have itself.

    Later libraries find them by their names, so no variable has to name the folder.
    """
    waiting = sorted(folder.glob("usr/lib/*/lib*.so.?")) + sorted(folder.glob("lib/*/lib*.so.?"))
    # Some of them need others.
    while waiting:
        left = [library for library in waiting if not _loads(library)]
        if left == waiting:
            return
        waiting = left


def _loads(library: Path) -> bool:
    for name in (library.name, str(library)):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False


@cache
def driver_library() -> str:
    """The path of the driver that came with the packages, for `Driver=`.

    Searched on each machine: the path may differ between executors and driver.
    """
    spec = find_spec("mssql_python_odbc")
    if spec is None or spec.origin is None:
        raise OdbcDriverError(
            "No ODBC driver is installed",
            advice=(
                "install the package mssql-python-odbc, or name an installed driver in the "
                "dsn, as in Driver={ODBC Driver 18 for SQL Server}"
            ),
        )
    folder = Path(spec.origin).parent / "libs"
    # Sorted: the most portable of the builds for Linux comes first.
    found = sorted(folder.glob(_pattern()))
    if not found:
        raise OdbcDriverError(
            f"The package mssql-python-odbc has no driver for {sys.platform} on "
            f"{platform.machine()}",
            advice="name an installed driver in the dsn as Driver={...}",
        )
    return str(found[0])


def _pattern() -> str:
    machine = "x86_64" if platform.machine() in {"x86_64", "AMD64"} else "arm64"
    if sys.platform == "darwin":
        return f"macos/{machine}/lib/libmsodbcsql*.dylib"
    return f"linux/*/{machine}/lib/libmsodbcsql-*.so.*"
