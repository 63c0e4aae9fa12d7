"""What JDBC is told of TLS."""

from pathlib import Path

import pytest

from duesweep.drivers.postgresql.tls import jdbc_tls
from duesweep.errors import ConfigError


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
