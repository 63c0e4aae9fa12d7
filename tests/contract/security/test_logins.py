"""Logins by psycopg, ODBC and JDBC: odd passwords arrive, and servers are checked as asked.

A front speaks TLS before PostgreSQL. SQL Server is a listener that refuses each login, so that a
test sees what reaches it. JDBC gets its settings from the dsn that the other driver has.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from duesweep.core.errors import ConfigError, DuesweepError, StoreError
from duesweep.core.policy import DEFAULT_TIMEOUTS
from duesweep.drivers.postgresql import session as postgresql
from duesweep.drivers.spark import SPARK_ERRORS
from duesweep.drivers.sqlserver import session as sqlserver
from duesweep.drivers.sqlserver.dsn import OdbcDsn
from duesweep.drivers.sqlserver.session import jdbc_properties
from duesweep.operations.demo.server import EmbeddedServer
from support.logins import Authority, TlsFront, create_role, password_server, tls_front
from support.needle import ODD
from support.tds_listener import TdsListener, tds_listener

_WAITS = DEFAULT_TIMEOUTS.task
Certificate = tuple[Path, Path]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def certificate(authority: Authority) -> Certificate:
    """The servers' certificate."""
    return authority.sign("localhost")


@pytest.fixture
def front(server: EmbeddedServer, certificate: Certificate) -> Iterator[TlsFront]:
    with tls_front(server.port, certificate) as front:
        yield front


@pytest.fixture
def stranger(tmp_path: Path) -> Authority:
    stranger = Authority(tmp_path, "stranger")
    stranger.sign("localhost")
    return stranger


def _read(spark: SparkSession, url: str, properties: Mapping[str, str], query: str) -> Any:
    return spark.read.jdbc(url, f"({query}) AS x", properties=dict(properties)).first()


# PostgreSQL


def _dsn(front: TlsFront, host: str = "localhost", **tls: object) -> str:
    given = {"host": host, "port": front.port, "dbname": "postgres", "user": "postgres", **tls}
    return make_conninfo(**{name: str(value) for name, value in given.items()})


def _refusal(dsn: str) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        postgresql.connect(dsn, _WAITS)
    return refused.value


def _user(dsn: str) -> str:
    with postgresql.connect(dsn, _WAITS) as connection:
        asked = {"schemas": ["pg_catalog"], "tables": ["pg_class"], "rights": [""]}
        user: str = connection.row("describe_tables", **asked).role
    return user


def _address(dsn: str) -> tuple[str, dict[str, str]]:
    with postgresql.connect(dsn, _WAITS) as connection:
        return connection.jdbc_address(30, None)


def _jdbc_user(spark: SparkSession, dsn: str) -> str:
    name: str = _read(spark, *_address(dsn), "SELECT current_user::text AS name").name
    return name


def test_odd_user_and_password_log_in_to_postgresql(spark: SparkSession, open_folder: Path) -> None:
    with password_server(open_folder) as server:
        for number, secret in enumerate(ODD):
            user = f"{number}{secret[:50]}"
            create_role(server.dsn, user, secret)
            name, password = (quote(part, safe="") for part in (user, secret))
            url = f"postgresql://{name}:{password}@127.0.0.1:{server.port}/postgres"
            # A bare ; or = in a user's name is a part of another driver's grammar.
            written = re.sub(r"(['\\])", r"\\\1", user)
            dsn = f"{make_conninfo(server.dsn, password=secret)} user='{written}'"

            assert [_user(url), _user(dsn), _jdbc_user(spark, dsn)] == [user] * 3

        with pytest.raises(ConfigError, match="password authentication failed") as refused:
            _user(f"{make_conninfo(server.dsn, password='n33dle')} user='{written}'")
        assert "n33dle" not in f"{refused.value} {refused.value.__cause__}"


def test_odd_database_is_read_by_jdbc(spark: SparkSession, server: EmbeddedServer) -> None:
    name = "a/b?c=d&e #%+é;{}'\"\\"
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    address = _address(make_conninfo(server.dsn, dbname=name))

    assert _read(spark, *address, "SELECT current_database() AS name").name == name


def test_postgresql_server_that_is_the_one_that_was_asked_for_gets_a_session(
    spark: SparkSession, front: TlsFront, authority: Authority
) -> None:
    dsn = _dsn(front, sslmode="verify-full", sslrootcert=authority.certificate)

    with postgresql.connect(dsn, _WAITS) as connection:
        assert connection.is_encrypted
    assert _jdbc_user(spark, dsn) == "postgres"


@dataclass(frozen=True)
class Stranger:
    """A dsn's requirement that the server does not meet, and both drivers' errors."""

    psycopg: str = "certificate verify failed"
    jdbc: str = "unable to find valid certification path"
    host: str = "localhost"
    mode: str = "verify-full"
    has_other_authority: bool = False


_STRANGERS = {
    "another name": Stranger(
        "does not match host name", "127.0.0.1 could not be verified", host="127.0.0.1"
    ),
    "another authority": Stranger(has_other_authority=True),
    "another authority, verify-ca": Stranger(mode="verify-ca", has_other_authority=True),
    "another authority, require": Stranger(mode="require", has_other_authority=True),
}


@pytest.mark.parametrize("asked", _STRANGERS.values(), ids=_STRANGERS)
def test_postgresql_server_that_is_another_one_is_refused(
    asked: Stranger, spark: SparkSession, front: TlsFront, authority: Authority, stranger: Authority
) -> None:
    trusted = (stranger if asked.has_other_authority else authority).certificate
    refusal = _refusal(_dsn(front, asked.host, sslmode=asked.mode, sslrootcert=trusted))
    assert asked.psycopg in refusal.text
    assert "sslrootcert" in str(refusal.advice)
    assert front.secured == 0 or not asked.has_other_authority

    # A session with the right settings, which are made wrong for JDBC only.
    dsn = _dsn(front, sslmode=asked.mode, sslrootcert=authority.certificate)
    assert _jdbc_user(spark, dsn) == "postgres"
    url, properties = _address(dsn)
    with pytest.raises(SPARK_ERRORS, match=asked.jdbc):
        _read(
            spark,
            url.replace("//localhost:", f"//{asked.host}:"),
            properties | {"sslrootcert": str(trusted)},
            "SELECT 1 AS a",
        )


def test_jdbc_with_the_machines_authorities_refuses_our_own(
    spark: SparkSession, front: TlsFront, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    address = _address(_dsn(front, sslmode="verify-full", sslrootcert="system"))

    # Java has authorities of its own.
    with pytest.raises(SPARK_ERRORS, match="unable to find valid certification path"):
        _read(spark, *address, "SELECT 1 AS a")


@pytest.mark.parametrize(
    ("asked", "refusal"),
    [
        ("sslmode=require", "server does not support SSL"),
        ("sslmode=verify_full", "sslmode"),
        ("sslmode=require&sslrootcert=system", "sslmode"),
    ],
)
def test_tls_that_cannot_be_is_refused(server: EmbeddedServer, asked: str, refusal: str) -> None:
    assert refusal in _refusal(f"{server.dsn}?{asked}").text


def test_session_without_tls_that_was_not_asked_for_is_read_by_jdbc_too(
    spark: SparkSession, server: EmbeddedServer
) -> None:
    assert _jdbc_user(spark, server.dsn) == "postgres"


def test_name_of_a_host_is_not_taken_for_an_error_of_tls() -> None:
    with pytest.raises(StoreError, match=r"certificate\.invalid") as missed:
        postgresql.connect("postgresql://u@certificate.invalid/d", _WAITS)
    assert missed.value.transient


def test_file_of_authorities_that_is_not_there_is_refused(front: TlsFront) -> None:
    refusal = _refusal(_dsn(front, sslmode="verify-full", sslrootcert="/nowhere.pem"))

    assert 'root certificate file "/nowhere.pem" does not exist' in refusal.text


def test_certificate_for_clients_is_sent_where_the_server_asks(
    spark: SparkSession, server: EmbeddedServer, authority: Authority, certificate: Certificate
) -> None:
    tls = {"sslmode": "verify-full", "sslrootcert": authority.certificate}
    file, key = authority.sign("sweeper")
    binary = key.with_suffix(".pk8")
    # As `openssl pkcs8 -topk8 -nocrypt -outform DER` does it.
    read = load_pem_private_key(key.read_bytes(), None)
    binary.write_bytes(read.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))
    binary.chmod(0o600)
    with tls_front(server.port, certificate, clients=authority) as front:
        assert "certificate required" in _refusal(_dsn(front, **tls)).text
        dsn = _dsn(front, **tls, sslcert=file, sslkey=key)
        assert _user(dsn) == "postgres"
        with pytest.raises(ConfigError, match="PEM, which JDBC cannot read; convert it: openssl"):
            _address(dsn)
        # The converted key serves both.
        assert _jdbc_user(spark, _dsn(front, **tls, sslcert=file, sslkey=binary)) == "postgres"


# SQL Server


@dataclass(frozen=True)
class Driver:
    """`refusal` logs in with an ODBC dsn, and returns its error. `trusting` makes an
    authority its only one. The texts are its errors for a server that it must not accept.
    """

    refusal: Callable[[str], str]
    trusting: Callable[[Authority], AbstractContextManager[None]]
    other_authority: str
    other_name: str


@pytest.fixture(params=["odbc", pytest.param("jdbc", marks=pytest.mark.xdist_group("spark"))])
def driver(request: pytest.FixtureRequest) -> Driver:
    if request.param == "odbc":
        return Driver(
            _odbc_refusal,
            _odbc_trusting,
            "has a certificate that is not trusted",
            "subject name does not match host name",
        )
    spark: SparkSession = request.getfixturevalue("spark")
    return Driver(
        lambda dsn: _jdbc_refusal(spark, dsn),
        lambda authority: _jdbc_trusting(spark, authority),
        "unable to find valid certification path",
        "Failed to validate the server name",
    )


def _odbc_refusal(dsn: str) -> str:
    with pytest.raises(DuesweepError) as refused:
        sqlserver.connect(dsn, _WAITS)
    return str(refused.value)


@contextmanager
def _odbc_trusting(authority: Authority) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(authority.certificate))
        yield


def _jdbc_refusal(spark: SparkSession, dsn: str) -> str:
    url, properties = OdbcDsn.parse(dsn).jdbc()
    with pytest.raises(SPARK_ERRORS) as refused:
        _read(spark, url, properties | jdbc_properties(_WAITS), "SELECT 1 AS a")
    return str(refused.value)


@contextmanager
def _jdbc_trusting(spark: SparkSession, authority: Authority) -> Iterator[None]:
    java: Any = spark._jvm  # noqa: SLF001 - there is no other way to the JVM
    with authority.certificate.open("rb") as pem:
        certificates = java.java.security.cert.CertificateFactory.getInstance("X.509")
        content = java.java.io.ByteArrayInputStream(pem.read())
        certificate = certificates.generateCertificate(content)
    store = java.java.security.KeyStore.getInstance("JKS")
    password = spark.sparkContext._gateway.new_array(java.char, 0)  # noqa: SLF001
    store.load(None, password)
    store.setCertificateEntry("authority", certificate)
    file = str(authority.certificate.with_suffix(".jks"))
    written = java.java.io.FileOutputStream(file)
    store.store(written, password)
    written.close()
    java.System.setProperty("javax.net.ssl.trustStore", file)
    try:
        yield
    finally:
        java.System.clearProperty("javax.net.ssl.trustStore")


def _log_in(driver: Driver, listener: TdsListener, host: str = "localhost", **more: str) -> str:
    """The driver's error for a login at the listener, which is always refused."""
    pairs = {"server": f"{host},{listener.port}", "database": "nsb", "uid": "u", "pwd": "n33dle"}
    refusal = driver.refusal(OdbcDsn(pairs | more).text())
    assert "n33dle" not in refusal
    return refusal


def test_odd_user_and_password_arrive_at_sql_server(driver: Driver) -> None:
    with tds_listener() as listener:
        for secret in ODD:
            refusal = _log_in(driver, listener, uid=secret, pwd=secret, encrypt="no")
            assert "Login failed." in refusal

    assert [(login.user, login.password) for login in listener.logins] == [(o, o) for o in ODD]


def test_sql_server_of_an_unknown_authority_gets_no_password_unless_it_is_trusted(
    driver: Driver, certificate: Certificate, stranger: Authority
) -> None:
    with tds_listener(certificate) as listener, driver.trusting(stranger):
        assert driver.other_authority in _log_in(driver, listener)
        # It asked for TLS.
        assert (listener.asked, listener.logins) == ([1], [])

        _log_in(driver, listener, trustservercertificate="yes")
        assert [login.password for login in listener.logins] == ["n33dle"]


def test_sql_server_has_to_have_the_name_in_its_certificate(
    driver: Driver, authority: Authority, certificate: Certificate
) -> None:
    with tds_listener(certificate) as listener, driver.trusting(authority):
        assert driver.other_name in _log_in(driver, listener, "127.0.0.1")
        assert listener.logins == []

        _log_in(driver, listener)
        refusal = _log_in(driver, listener, "127.0.0.1", hostnameincertificate="localhost")
        assert "Login failed." in refusal
        assert [login.password for login in listener.logins] == ["n33dle"] * 2


def test_sql_server_without_tls_gets_no_password(driver: Driver) -> None:
    with tds_listener() as listener:
        refusal = _log_in(driver, listener)

    assert "encrypt" in refusal.lower()
    assert listener.logins == []
