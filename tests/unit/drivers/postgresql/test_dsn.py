"""The meaning of a dsn, also for TLS over JDBC, and the errors for a wrong one. Connects to
nothing.
"""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from duesweep.core.errors import ConfigError
from duesweep.core.policy import DEFAULT_TIMEOUTS
from duesweep.drivers.postgresql.session import connect, database_of
from duesweep.drivers.postgresql.start import literal
from duesweep.drivers.postgresql.wire import channel_binding, jdbc_tls, tls_settings
from duesweep.stores.due import JdbcSource


@pytest.fixture(autouse=True)
def _no_libpq_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGDATABASE", "PGSERVICE", "PGUSER"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("dsn", "database"),
    [("service=a", "nsb"), ("service=b", "crm"), ("service=b dbname=x", "x"), ("dbname=y", "y")],
)
def test_database_of_a_service_is_the_one_in_its_file(
    dsn: str, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = tmp_path / "services.conf"
    services.write_text("[a]\ndbname=nsb\n[b]\ndbname=crm\n", "utf-8")
    monkeypatch.setenv("PGSERVICEFILE", str(services))

    assert database_of(dsn) == database
    assert "PGSERVICE" not in os.environ


@pytest.mark.parametrize(
    ("dsn", "database"),
    [
        ("postgresql://sweeper@db.example:5432/sales", "sales"),
        ("postgresql://sweeper@db.example/with%20space", "with space"),
        ("host=db.example dbname='my db' user=sweeper", "my db"),
        ("postgresql://sweeper@db.example", "sweeper"),
    ],
)
def test_database_is_the_one_that_libpq_would_take(dsn: str, database: str) -> None:
    assert database_of(dsn) == database


def test_database_of_the_environment_is_taken_where_the_dsn_names_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGDATABASE", "sales")

    assert database_of("postgresql://sweeper@db.example") == "sales"


@pytest.mark.parametrize(
    "dsn",
    [
        pytest.param("postgres//sweeper:s3cret@db.example/sales", id="no colon after the scheme"),
        pytest.param("postgresql://sweeper:s3cret%zz@db.example/sales", id="a bare percent sign"),
        pytest.param("postgresql://sweeper:s3cret@db.example/sales?x=y", id="an unknown parameter"),
        pytest.param("host=db.example password='s3cret", id="a quote that is not closed"),
        pytest.param("host=db.example password=top s3cret", id="a blank in the password"),
        pytest.param("host=db.example passwort=s3cret", id="a misspelt keyword"),
    ],
)
def test_dsn_that_cannot_be_read_is_refused_without_its_password(dsn: str) -> None:
    for use in (database_of, lambda dsn: connect(dsn, DEFAULT_TIMEOUTS.task)):
        with pytest.raises(ConfigError) as refusal:
            use(dsn)
        assert "dsn" in str(refusal.value)
        assert "s3cret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [("a", "'a'"), ("it's", "'it''s'"), ("a\\b", " E'a\\\\b'"), ("%s", "'%s'")],
)
def test_literal_is_quoted(value: str, text: str) -> None:
    assert literal(value).strip() == text.strip()


def test_jdbc_source_keeps_its_password_out_of_its_repr() -> None:
    source = JdbcSource("jdbc:postgresql://db.example/sales", {"password": "s3cret"})

    assert "s3cret" not in repr(source) + str(source)


def test_settings_of_tls_are_passed_on_and_no_others() -> None:
    settings = {"sslmode": "verify-ca", "sslrootcert": "/ca.pem", "sslpassword": "p"}

    assert jdbc_tls({**settings, "sslcompression": "0"}) == settings


def test_authorities_of_the_machine_are_no_file_for_jdbc() -> None:
    assert jdbc_tls({"sslmode": "verify-full", "sslrootcert": "system"}) == {
        "sslmode": "verify-full",
        "sslfactory": "org.postgresql.ssl.DefaultJavaSSLFactory",
    }


@pytest.mark.parametrize("name", ["sslcrl", "sslcrldir"])
def test_list_of_revoked_certificates_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"The dsn has {name}, and JDBC does not check"):
        jdbc_tls({"sslmode": "verify-full", name: "/revoked"})


def test_key_that_jdbc_cannot_read_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "sweeper.key"
    key.write_bytes(b"\x30\x82")
    assert jdbc_tls({"sslkey": str(key)}) == {"sslkey": str(key)}

    key.write_text("-----BEGIN PRIVATE KEY-----")
    with pytest.raises(ConfigError, match="is PEM, which JDBC cannot read"):
        jdbc_tls({"sslkey": str(key)})


class FakeSession:
    """A session that asked for these settings."""

    def __init__(self, **settings: str) -> None:
        options = [
            SimpleNamespace(keyword=name.encode(), val=value.encode())
            for name, value in settings.items()
        ]
        self.pgconn = SimpleNamespace(info=[*options, SimpleNamespace(keyword=b"host", val=None)])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_file_of_authorities_that_libpq_takes_by_itself_is_told_to_jdbc(home: Path) -> None:
    session: Any = FakeSession(sslmode="require", channel_binding="require")
    assert tls_settings(session) == {"sslmode": "require"}

    file = home / ".postgresql" / "root.crt"
    file.parent.mkdir()
    file.touch()

    assert tls_settings(session) == {"sslmode": "verify-ca", "sslrootcert": str(file)}
    assert channel_binding(session) == "require"
    prefers: Any = FakeSession(sslmode="prefer")
    assert (tls_settings(prefers), channel_binding(prefers)) == ({"sslmode": "prefer"}, "prefer")


@pytest.mark.parametrize("error", [RuntimeError("no home"), PermissionError("not yours")])
def test_home_that_cannot_be_read_has_no_authorities(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> Path:
        raise error

    monkeypatch.setattr(Path, "expanduser", refuse)
    session: Any = FakeSession(sslmode="require")

    assert tls_settings(session) == {"sslmode": "require"}
