"""What reaches SQL Server before a login: the password, and only after the server has proved its
name. The server is one that refuses each login, so that no SQL Server is needed.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from duesweep.core.timeouts import DEFAULT_TIMEOUTS
from duesweep.drivers.sqlserver import OdbcDsn, connect
from duesweep.errors import ConfigError
from support.certificates import Authority
from support.needle import ODD
from support.tds_listener import TdsListener, tds_listener

Trust = Callable[[Authority], None]


@pytest.fixture
def trust(monkeypatch: pytest.MonkeyPatch) -> Trust:
    """Make an authority the machine's only one."""
    return lambda authority: monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))


def _dsn(listener: TdsListener, host: str = "localhost", **more: str) -> str:
    pairs = {"server": f"{host},{listener.port}", "database": "nsb", "uid": "u", "pwd": "n33dle"}
    return OdbcDsn(pairs | more).text()


def _refusal(dsn: str) -> str:
    with pytest.raises(ConfigError) as refused:
        connect(dsn, DEFAULT_TIMEOUTS.task)
    assert "n33dle" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("secret", ODD)
def test_odd_user_and_password_arrive_as_they_are(secret: str) -> None:
    with tds_listener() as listener:
        dsn = _dsn(listener, uid=secret, pwd=secret, encrypt="no")

        assert "Login failed. (18456)" in _refusal(dsn)

    assert [(login.user, login.password) for login in listener.logins] == [(secret, secret)]


def test_server_of_an_unknown_authority_gets_no_password(
    authority: Authority, tmp_path: Path, trust: Trust
) -> None:
    stranger = Authority(tmp_path, "stranger")
    stranger.sign("localhost")
    trust(stranger)
    with tds_listener(authority.sign("localhost")) as listener:
        refusal = _refusal(_dsn(listener))

    assert "has a certificate that is not trusted" in refusal
    assert (listener.asked, listener.logins) == ([1], [])


def test_server_of_another_name_gets_no_password(authority: Authority, trust: Trust) -> None:
    with tds_listener(authority.sign("localhost")) as listener:
        trust(authority)
        refusal = _refusal(_dsn(listener, host="127.0.0.1"))

    assert "subject name does not match host name" in refusal
    assert listener.logins == []


def test_server_without_tls_gets_no_password() -> None:
    with tds_listener() as listener, pytest.raises(Exception, match="Encryption not supported"):
        connect(_dsn(listener), DEFAULT_TIMEOUTS.task)

    assert listener.logins == []


@pytest.mark.parametrize(
    ("host", "more"),
    [
        ("localhost", {}),
        ("127.0.0.1", {"hostnameincertificate": "localhost"}),
    ],
)
def test_server_that_proves_its_name_gets_the_login(
    authority: Authority, trust: Trust, host: str, more: dict[str, str]
) -> None:
    with tds_listener(authority.sign("localhost")) as listener:
        trust(authority)
        refusal = _refusal(_dsn(listener, host, **more))

    assert "Login failed. (18456)" in refusal
    assert [login.password for login in listener.logins] == ["n33dle"]
