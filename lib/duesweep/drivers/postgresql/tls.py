"""TLS: what a session asked for, and the same for JDBC.

https://www.postgresql.org/docs/current/libpq-ssl.html and https://jdbc.postgresql.org/documentation/ssl
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg

from duesweep.errors import ConfigError

_JDBC_TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword")
_REVOKED = ("sslcrl", "sslcrldir")
# The file of authorities that libpq takes where the dsn names none.
_AUTHORITIES = Path("~/.postgresql/root.crt")
# libpq's name for the authorities of the machine. JDBC would take it for a file.
_OF_THE_MACHINE = "system"
_MACHINES_FACTORY = "org.postgresql.ssl.DefaultJavaSSLFactory"


def tls_settings(raw: psycopg.Connection[Any]) -> dict[str, str]:
    """The session's settings of TLS, also those that are the environment's (PGSSLMODE …). `sslmode`
    is `verify-ca` where libpq treats `require` as such.
    """
    # psycopg's own info leaves out settings of the environment.
    settings = {option.keyword.decode(): (option.val or b"").decode() for option in raw.pgconn.info}
    found = {name: value for name, value in settings.items() if name.startswith("ssl") and value}
    if found.get("sslmode") == "require" and ("sslrootcert" in found or _has_authorities()):
        found["sslmode"] = "verify-ca"
    return found


def jdbc_tls(settings: Mapping[str, str]) -> dict[str, str]:
    """Connection properties of JDBC that check as much as a session with these settings.

    Raises `ConfigError` for settings that JDBC does not know.
    """
    for name in _REVOKED:
        if name in settings:
            raise ConfigError(
                f"The dsn has {name}, and JDBC does not check whether a certificate is revoked",
                advice=f"remove {name}, or raise sweep.spark_from so that sweeps work without JDBC",
            )
    _refuse_pem_key(settings.get("sslkey"))
    properties = {name: settings[name] for name in _JDBC_TLS if name in settings}
    if properties.get("sslrootcert") == _OF_THE_MACHINE:
        del properties["sslrootcert"]
        properties["sslfactory"] = _MACHINES_FACTORY
    return properties


def _has_authorities() -> bool:
    try:
        return _AUTHORITIES.expanduser().exists()
    except RuntimeError:
        # A container's user may have no home.
        return False


def _refuse_pem_key(file: str | None) -> None:
    if file and Path(file).is_file() and b"-----BEGIN" in Path(file).read_bytes():
        raise ConfigError(
            f"The dsn's sslkey, {file}, is PEM, which JDBC cannot read",
            advice="convert it: openssl pkcs8 -topk8 -nocrypt -outform DER -in KEY -out KEY.pk8; "
            "psycopg reads that too",
        )
