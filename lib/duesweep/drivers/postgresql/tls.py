"""TLS: what a session asked for, and the same for JDBC as far as its driver knows it.

https://www.postgresql.org/docs/current/libpq-ssl.html and https://jdbc.postgresql.org/documentation/ssl
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg

from duesweep.core.errors import ConfigError

_JDBC_TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword")
_REVOKED = ("sslcrl", "sslcrldir")
# The file of authorities that libpq takes where the dsn names none.
_AUTHORITIES = Path("~/.postgresql/root.crt")
_ASKED_FOR = {"require", "verify-ca", "verify-full"}
# libpq's name for the authorities of the machine. JDBC would take it for a file.
_OF_THE_MACHINE = "system"
_MACHINES_FACTORY = "org.postgresql.ssl.DefaultJavaSSLFactory"


def tls_settings(raw: psycopg.Connection[Any]) -> dict[str, str]:
    """The session's settings of TLS, also those that are the environment's (PGSSLMODE …) and the
    file of authorities that libpq takes by itself. `sslmode` is `verify-ca` where libpq treats
    `require` as such.
    """
    found = {name: value for name, value in _settings(raw).items() if name.startswith("ssl")}
    if found.get("sslmode") in _ASKED_FOR and _has_authorities():
        found.setdefault("sslrootcert", str(_AUTHORITIES.expanduser()))
    if found.get("sslmode") == "require" and "sslrootcert" in found:
        found["sslmode"] = "verify-ca"
    return found


def jdbc_tls(settings: Mapping[str, str]) -> dict[str, str]:
    """Connection properties of JDBC that check the server's certificate as these settings do.

    Raises `ConfigError` for those about certificates that JDBC does not know.
    """
    for name in _REVOKED:
        if name in settings:
            raise ConfigError(
                f"The dsn has {name}, and JDBC does not check whether a certificate is revoked",
                advice=f"remove {name}",
            )
    _refuse_pem_key(settings.get("sslkey"))
    properties = {name: settings[name] for name in _JDBC_TLS if name in settings}
    if properties.get("sslrootcert") == _OF_THE_MACHINE:
        del properties["sslrootcert"]
        properties["sslfactory"] = _MACHINES_FACTORY
    return properties


def channel_binding(raw: psycopg.Connection[Any]) -> str:
    """Whether the session has to bind the login to TLS: `disable`, `prefer` or `require`."""
    return _settings(raw).get("channel_binding", "prefer")


def _settings(raw: psycopg.Connection[Any]) -> dict[str, str]:
    # psycopg's own info leaves out settings of the environment.
    options = raw.pgconn.info
    return {option.keyword.decode(): option.val.decode() for option in options if option.val}


def _has_authorities() -> bool:
    try:
        return _AUTHORITIES.expanduser().exists()
    except (RuntimeError, OSError):
        # A container's user may have no home, or one that it may not read.
        return False


def _refuse_pem_key(file: str | None) -> None:
    if file and Path(file).is_file() and b"-----BEGIN" in Path(file).read_bytes():
        raise ConfigError(
            f"The dsn's sslkey, {file}, is PEM, which JDBC cannot read",
            advice="convert it: openssl pkcs8 -topk8 -nocrypt -outform DER -in KEY -out KEY.pk8; "
            "psycopg reads that too",
        )
