"""JDBC logs in as psycopg and ODBC do: with odd passwords, and only where they would."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from duesweep.core.timeouts import DEFAULT_TIMEOUTS
from duesweep.demo.server import EmbeddedServer
from duesweep.drivers.postgresql import connect
from duesweep.drivers.sqlserver.connection import jdbc_properties
from duesweep.drivers.sqlserver.dsn import OdbcDsn
from duesweep.errors import ConfigError
from duesweep.spark_errors import SPARK_ERRORS
from support.certificates import Authority, run_openssl
from support.needle import ODD
from support.password_server import create_role, password_server
from support.tds_listener import TdsListener, tds_listener
from support.tls_front import TlsFront, tls_front

LIMITS = DEFAULT_TIMEOUTS.task
FULL = {"sslmode": "verify-full"}


def _read(spark: SparkSession, url: str, properties: dict[str, str], query: str) -> Any:
    return spark.read.jdbc(url, f"({query}) AS x", properties=properties).first()


def _user(spark: SparkSession, dsn: str) -> str:
    """Who is logged in by JDBC with what a session of psycopg says."""
    with connect(dsn, LIMITS) as connection:
        url, properties = connection.jdbc_address(30)
    name: str = _read(spark, url, properties, "SELECT current_user::text AS name").name
    return name


def test_odd_user_and_password_log_in_to_postgresql(spark: SparkSession, open_folder: Path) -> None:
    with password_server(open_folder) as server:
        for number, secret in enumerate(ODD):
            user = f"{number}{secret[:50]}"
            create_role(server.dsn, user, secret)
            dsn = make_conninfo(server.dsn, user=user, password=secret)

            assert _user(spark, dsn) == user


def test_odd_database_is_read_by_jdbc(spark: SparkSession, server: EmbeddedServer) -> None:
    name = "a/b?c=d&e #%+é;{}'\"\\"
    with connect(server.dsn, LIMITS) as admin:
        quoted = '"' + name.replace('"', '""') + '"'
        admin._raw.execute(f"CREATE DATABASE {quoted}".encode())  # noqa: SLF001 - no statement of ours
    with connect(make_conninfo(server.dsn, dbname=name), LIMITS) as connection:
        url, properties = connection.jdbc_address(30)

    assert _read(spark, url, properties, "SELECT current_database() AS name").name == name


def _tls_dsn(front: TlsFront, host: str = "localhost", **tls: object) -> str:
    given = {"host": host, "port": front.port, "dbname": "postgres", "user": "postgres", **tls}
    return make_conninfo(**{name: str(value) for name, value in given.items()})


def _address(dsn: str, host: str) -> tuple[str, dict[str, str]]:
    """The JDBC address of a session, with the host that another server is at."""
    with connect(dsn, LIMITS) as connection:
        url, properties = connection.jdbc_address(30)
    return url.replace("//localhost:", f"//{host}:"), properties


@pytest.fixture
def front(server: EmbeddedServer, tmp_path: Path) -> Iterator[tuple[TlsFront, Authority]]:
    authority = Authority(tmp_path)
    with tls_front(server.port, authority.sign("localhost")) as front:
        yield front, authority


def test_jdbc_checks_name_and_authority_as_psycopg_does(
    spark: SparkSession, front: tuple[TlsFront, Authority]
) -> None:
    tls, authority = front
    dsn = _tls_dsn(tls, sslmode="verify-full", sslrootcert=authority.certificate)

    assert _user(spark, dsn) == "postgres"
    url, properties = _address(dsn, "127.0.0.1")
    with pytest.raises(SPARK_ERRORS, match=r"hostname 127\.0\.0\.1 could not be verified"):
        _read(spark, url, properties, "SELECT 1 AS a")


@pytest.mark.parametrize("mode", ["verify-full", "verify-ca", "require"])
def test_jdbc_refuses_the_server_of_another_authority_where_psycopg_does(
    spark: SparkSession, front: tuple[TlsFront, Authority], tmp_path: Path, mode: str
) -> None:
    tls, authority = front
    stranger = Authority(tmp_path, "stranger")
    stranger.sign("localhost")
    url, properties = _address(
        _tls_dsn(tls, sslmode=mode, sslrootcert=authority.certificate), "localhost"
    )
    assert _read(spark, url, properties, "SELECT 1 AS a").a == 1

    with pytest.raises(SPARK_ERRORS, match="unable to find valid certification path"):
        _read(
            spark,
            url,
            properties | {"sslrootcert": str(stranger.certificate)},
            "SELECT 1 AS a",
        )


def test_jdbc_with_the_machines_authorities_refuses_our_own(
    spark: SparkSession, front: tuple[TlsFront, Authority], monkeypatch: pytest.MonkeyPatch
) -> None:
    tls, authority = front
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    url, properties = _address(
        _tls_dsn(tls, sslmode="verify-full", sslrootcert="system"), "localhost"
    )

    # Java has authorities of its own.
    with pytest.raises(SPARK_ERRORS, match="unable to find valid certification path"):
        _read(spark, url, properties, "SELECT 1 AS a")


def test_session_without_tls_that_was_not_asked_for_is_read_by_jdbc_too(
    spark: SparkSession, server: EmbeddedServer
) -> None:
    assert _user(spark, server.dsn) == "postgres"


@pytest.fixture
def clients(
    server: EmbeddedServer, tmp_path: Path
) -> Iterator[tuple[TlsFront, Mapping[str, object]]]:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("sweeper")
    own = {**FULL, "sslrootcert": authority.certificate, "sslcert": certificate, "sslkey": key}
    with tls_front(server.port, authority.sign("localhost"), clients=authority) as front:
        yield front, own


def test_key_that_jdbc_cannot_read_is_refused_with_how_to_convert_it(
    clients: tuple[TlsFront, Mapping[str, object]],
) -> None:
    front, own = clients

    with (
        connect(_tls_dsn(front, **own), LIMITS) as connection,
        pytest.raises(ConfigError, match="is PEM, which JDBC cannot read; convert it: openssl"),
    ):
        connection.jdbc_address(30)


def test_converted_key_serves_both(
    spark: SparkSession, clients: tuple[TlsFront, dict[str, object]]
) -> None:
    front, own = clients
    key = Path(str(own["sslkey"]))
    binary = key.with_suffix(".pk8")
    run_openssl("pkcs8", "-topk8", "-nocrypt", "-outform", "DER", "-in", key, "-out", binary)
    binary.chmod(0o600)

    assert _user(spark, _tls_dsn(front, **{**own, "sslkey": binary})) == "postgres"


def _log_in(spark: SparkSession, listener: TdsListener, **pairs: str) -> str:
    """What JDBC says of a login with the settings of an ODBC dsn, which is always refused."""
    given = {"server": f"localhost,{listener.port}", "uid": "u", "pwd": "n33dle"} | pairs
    url, properties = OdbcDsn.parse(OdbcDsn(given).text()).jdbc()
    with pytest.raises(SPARK_ERRORS) as refused:
        _read(spark, url, properties | jdbc_properties(LIMITS), "SELECT 1 AS a")
    return str(refused.value)


@pytest.mark.parametrize("secret", ODD)
def test_odd_user_and_password_arrive_at_sql_server(spark: SparkSession, secret: str) -> None:
    with tds_listener() as listener:
        _log_in(spark, listener, uid=secret, pwd=secret, encrypt="no")

    assert [(login.user, login.password) for login in listener.logins] == [(secret, secret)]


def test_sql_server_of_an_unknown_authority_gets_no_password_unless_it_is_trusted(
    spark: SparkSession, tmp_path: Path
) -> None:
    with tds_listener(Authority(tmp_path).sign("localhost")) as listener:
        refusal = _log_in(spark, listener)
        assert "unable to find valid certification path" in refusal
        assert listener.logins == []

        _log_in(spark, listener, trustservercertificate="yes")
        assert [login.password for login in listener.logins] == ["n33dle"]


def test_sql_server_without_tls_gets_no_password(spark: SparkSession) -> None:
    with tds_listener() as listener:
        _log_in(spark, listener)

    assert listener.logins == []


@contextmanager
def _trusting(spark: SparkSession, authority: Authority, file: Path) -> Iterator[None]:
    """Make an authority the JVM's only one."""
    java: Any = spark._jvm  # noqa: SLF001 - there is no other way to the JVM
    with authority.certificate.open("rb") as pem:
        certificates = java.java.security.cert.CertificateFactory.getInstance("X.509")
        content = java.java.io.ByteArrayInputStream(pem.read())
        certificate = certificates.generateCertificate(content)
    store = java.java.security.KeyStore.getInstance("JKS")
    password = spark.sparkContext._gateway.new_array(java.char, 0)  # noqa: SLF001
    store.load(None, password)
    store.setCertificateEntry("authority", certificate)
    written = java.java.io.FileOutputStream(str(file))
    store.store(written, password)
    written.close()
    java.System.setProperty("javax.net.ssl.trustStore", str(file))
    try:
        yield
    finally:
        java.System.clearProperty("javax.net.ssl.trustStore")


def test_sql_server_has_to_have_the_name_in_its_certificate(
    spark: SparkSession, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    with (
        tds_listener(authority.sign("localhost")) as listener,
        _trusting(spark, authority, tmp_path / "trusted.jks"),
    ):
        refusal = _log_in(spark, listener, server=f"127.0.0.1,{listener.port}")
        assert "Failed to validate the server name" in refusal
        assert listener.logins == []

        _log_in(spark, listener)
        _log_in(
            spark,
            listener,
            server=f"127.0.0.1,{listener.port}",
            hostnameincertificate="localhost",
        )
        assert len(listener.logins) == 2
