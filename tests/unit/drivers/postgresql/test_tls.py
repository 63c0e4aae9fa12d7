"""What JDBC is told of TLS."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from duesweep.core.errors import ConfigError
from duesweep.drivers.postgresql.tls import channel_binding, jdbc_tls, tls_settings


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
