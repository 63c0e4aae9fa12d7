"""Odd passwords for PostgreSQL in both forms of a dsn, and TLS that is checked as asked."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import pytest
from psycopg.conninfo import make_conninfo

from duesweep.core.timeouts import DEFAULT_TIMEOUTS
from duesweep.demo.server import EmbeddedServer
from duesweep.drivers.postgresql import connect
from duesweep.errors import ConfigError, StoreError
from support.certificates import Authority
from support.needle import ODD
from support.password_server import create_role
from support.tls_front import TlsFront, tls_front

LIMITS = DEFAULT_TIMEOUTS.task


def _user(dsn: str) -> str:
    with connect(dsn, LIMITS) as connection:
        user: str = connection.row("doctor_server").role
    return user


def test_odd_user_and_password_log_in_by_url_and_by_keywords(
    strict_server: EmbeddedServer,
) -> None:
    for number, secret in enumerate(ODD):
        user = f"{number}{secret[:50]}"
        create_role(strict_server.dsn, user, secret)
        name, password = (quote(part, safe="") for part in (user, secret))
        url = f"postgresql://{name}:{password}@127.0.0.1:{strict_server.port}/postgres"
        pairs = {"host": "127.0.0.1", "port": strict_server.port, "dbname": "postgres"}

        assert _user(url) == user
        assert _user(make_conninfo(**pairs, user=user, password=secret)) == user


def test_wrong_password_is_refused_and_not_repeated(strict_server: EmbeddedServer) -> None:
    create_role(strict_server.dsn, "sweeper", "right")

    with pytest.raises(ConfigError, match="password authentication failed") as refused:
        _user(f"postgresql://sweeper:n33dle@127.0.0.1:{strict_server.port}/postgres")

    assert "n33dle" not in f"{refused.value} {refused.value.__cause__}"


@pytest.fixture
def certificate(authority: Authority) -> tuple[Path, Path]:
    return authority.sign("localhost")


def _dsn(front: TlsFront, tls: Mapping[str, object], host: str = "localhost") -> str:
    given = {"host": host, "port": front.port, "dbname": "postgres", "user": "postgres", **tls}
    return make_conninfo(**{name: str(value) for name, value in given.items()})


def test_server_with_the_name_and_authority_that_are_asked_for_gets_a_session(
    server: EmbeddedServer, authority: Authority, certificate: tuple[Path, Path]
) -> None:
    with tls_front(server.port, certificate) as front:
        tls = {"sslmode": "verify-full", "sslrootcert": authority.certificate}

        with connect(_dsn(front, tls), LIMITS) as connection:
            assert connection.is_encrypted


@pytest.mark.parametrize("mode", ["verify-full", "verify-ca", "require"])
def test_server_of_another_authority_is_refused(
    server: EmbeddedServer, certificate: tuple[Path, Path], tmp_path: Path, mode: str
) -> None:
    stranger = Authority(tmp_path, "stranger")
    stranger.sign("localhost")
    with tls_front(server.port, certificate) as front:
        tls = {"sslmode": mode, "sslrootcert": stranger.certificate}
        refusal = _refusal(_dsn(front, tls))

    assert "certificate verify failed" in refusal.text
    assert "sslrootcert" in str(refusal.advice)
    assert front.secured == 0


def test_server_of_another_name_is_refused(
    server: EmbeddedServer, authority: Authority, certificate: tuple[Path, Path]
) -> None:
    with tls_front(server.port, certificate) as front:
        tls = {"sslmode": "verify-full", "sslrootcert": authority.certificate}
        refusal = _refusal(_dsn(front, tls, host="127.0.0.1"))

    assert "does not match host name" in refusal.text
    assert "sslrootcert" in str(refusal.advice)


def test_server_without_tls_is_refused_where_it_is_asked_for(server: EmbeddedServer) -> None:
    refusal = _refusal(f"{server.dsn}?sslmode=require")

    assert "server does not support SSL" in refusal.text


@pytest.mark.parametrize("settings", ["sslmode=verify_full", "sslmode=require&sslrootcert=system"])
def test_settings_that_libpq_does_not_know_are_refused(
    server: EmbeddedServer, settings: str
) -> None:
    assert "sslmode" in _refusal(f"{server.dsn}?{settings}").text


def test_name_of_a_host_is_not_taken_for_an_error_of_tls() -> None:
    with pytest.raises(StoreError, match=r"certificate\.invalid") as missed:
        connect("postgresql://u@certificate.invalid/d", LIMITS)
    assert missed.value.transient


def test_file_of_authorities_that_is_not_there_is_refused(
    server: EmbeddedServer, certificate: tuple[Path, Path]
) -> None:
    with tls_front(server.port, certificate) as front:
        refusal = _refusal(_dsn(front, {"sslmode": "verify-full", "sslrootcert": "/nowhere.pem"}))

    assert 'root certificate file "/nowhere.pem" does not exist' in refusal.text


def test_certificate_for_clients_is_sent_where_the_server_asks(
    server: EmbeddedServer, authority: Authority, certificate: tuple[Path, Path]
) -> None:
    with tls_front(server.port, certificate, clients=authority) as front:
        tls = {"sslmode": "verify-full", "sslrootcert": authority.certificate}
        own = dict(zip(("sslcert", "sslkey"), authority.sign("sweeper"), strict=True))

        with connect(_dsn(front, tls | own), LIMITS) as connection:
            assert connection.is_encrypted
        assert "certificate required" in _refusal(_dsn(front, tls)).text


def _refusal(dsn: str) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        connect(dsn, LIMITS)
    return refused.value
