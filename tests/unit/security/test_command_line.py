"""Passwords on the command line, which `ps` shows to every user of a machine."""

import pytest

from duesweep.cli.app import main
from duesweep.config import holds_password

ACCESS = [
    ("store.dsn", "postgresql://sweeper:n33dle@db.example/nsb"),
    ("store.dsn", "postgresql://sweeper@db.example/nsb?password=n33dle"),
    ("store.dsn", "host=db.example user=sweeper password='n33dle x'"),
    ("store.dsn", "Server=db.example;Database=nsb;Uid=u;Pwd={n33dle}"),
    ("queues.default.dsn", "Server=db.example;PASSWORD = n33dle"),
    ("store.jdbc_url", "jdbc:sqlserver://db.example;password=n33dle"),
    ("queues.default.url", "amqps://sweeper:n33dle@mq.example/"),
    ("queues.default.management_url", "https://sweeper:n33dle@mq.example:15671"),
    ("queues.my-broker.url", "amqp://sweeper:n33dle@mq.example/"),
    (" store.dsn", "postgresql://sweeper:n33/dle@db.example/nsb"),
    ("store.jdbc_url", "jdbc:sqlserver://db.example;accessToken=n33dle"),
    ("store.jdbc_url", "jdbc:sqlserver://db.example;AADSecurePrincipalSecret=n33dle"),
    ("store.options.password", "n33dle"),
]


@pytest.mark.parametrize(("path", "value"), ACCESS)
@pytest.mark.parametrize("command", [["sweep"], ["config"], ["queue", "peek", "Billing"]])
def test_password_on_the_command_line_is_refused_and_not_repeated(
    command: list[str], path: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--set", f"{path}={value}"]) == 2

    path = path.strip()
    variable = f"DUESWEEP_{path.upper().replace('.', '__')}"
    assert capsys.readouterr() == (
        "",
        f"duesweep: --set {path} has a password, which every user of this machine can see. "
        f"Set {variable} in the environment, and change the password\n",
    )


@pytest.mark.parametrize(
    "value",
    [
        "postgresql://sweeper@db.example:5432/nsb",
        "postgresql://db.example:5432/nsb",
        "host=db.example user=sweeper passfile=/etc/pgpass",
        "Server=db.example,1433;Database=nsb;Trusted_Connection=yes",
        "amqps://mq.example:5671/v",
        "Server=db.example;Pwd=;Trusted_Connection=yes",
        "postgresql://db.example:5432/nsb?application_name=a@b",
    ],
)
def test_dsn_without_a_password_is_no_secret(value: str) -> None:
    assert not holds_password(value)
