"""Ports that no server can have are refused with the configuration, before anybody connects."""

import pytest

from duesweep.cli.app import main
from duesweep.config import load
from support.config_files import MINIMAL, file_of, refusal_of

OWN = "postgresql://sweeper:s3cret@db.example:5432/sales"
ROUTED = '[[route]]\ndestination = "*"\nconnection = "main"\n'


POSTGRESQL = [
    "postgresql://u@h:abc/db",
    "postgres://u:s3cret@h:99999/db",
    "postgresql://u@h:0/db",
    "postgresql://u@h1:5432,h2:x/db",
    "postgresql://u@[::1]:abc/db",
    "postgresql://u:s3cret@w0rd:x@h/db",
    "postgresql://u@h/db?port=abc",
    "host=h port=abc dbname=db",
    "host=h port = '65536' dbname=db",
    "host=h1,h2 port=5432,x dbname=db",
]
SQL_SERVER = [
    "Server=h,abc;Database=db;Uid=u;Pwd=s3cret",
    "Server=tcp:h,99999;Database=db",
    "Server={h\\i,0};Database=db",
    "Driver=x;ADDRESS = h,1e3 ;Database=db",
]
AMQP = [
    "amqp://u:s3cret@h:abc/",
    "amqps://u@h:99999/v",
    "amqp://h:0",
    "amqp://[::1]:x",
]


def _with_store(kind: str, dsn: str) -> str:
    return MINIMAL.replace(f'"{OWN}"', f"'''{dsn}'''\nkind = \"{kind}\"")


@pytest.mark.parametrize(
    ("kind", "dsn"),
    [*(("postgresql", dsn) for dsn in POSTGRESQL), *(("sqlserver", dsn) for dsn in SQL_SERVER)],
)
def test_bad_port_of_a_store_is_a_wrong_setting(kind: str, dsn: str) -> None:
    refusal = refusal_of(_with_store(kind, dsn))

    assert refusal.startswith("store.dsn is wrong: its port is not a number from 1 to 65535")
    assert "s3cret" not in refusal
    assert "w0rd" not in refusal


@pytest.mark.parametrize(
    ("kind", "dsn"), [("postgresql", POSTGRESQL[0]), ("sqlserver", SQL_SERVER[0])]
)
def test_bad_port_of_a_queue_is_a_wrong_setting(kind: str, dsn: str) -> None:
    queue = f"[queues.main]\nkind = \"{kind}\"\ndsn = '''{dsn}'''\n{ROUTED}"

    assert "queues.main.dsn is wrong: its port is not a number" in refusal_of(MINIMAL + queue)


@pytest.mark.parametrize("url", AMQP)
def test_bad_port_of_a_broker_is_a_wrong_setting(url: str) -> None:
    for given in (f'"{url}"', f'["amqp://other", "{url}"]'):
        refusal = refusal_of(f'{MINIMAL}[queues.main]\nkind = "rabbitmq"\nurl = {given}\n{ROUTED}')

        assert "queues.main.url is wrong: its port is not a number" in refusal
        assert "s3cret" not in refusal


def test_bad_port_of_the_management_api_is_a_wrong_setting() -> None:
    queue = '[queues.main]\nkind = "rabbitmq"\nurl = "amqp://h"\nmanagement_url = "http://h:x"\n'

    assert "queues.main.management_url is wrong: its port" in refusal_of(MINIMAL + queue + ROUTED)


def test_bad_port_of_the_jdbc_url_is_a_wrong_setting() -> None:
    text = _with_store("sqlserver", "Server=h;Database=db")

    refusal = refusal_of(text, "store.jdbc_url=jdbc:sqlserver://h:abc;encrypt=true")

    assert refusal.startswith("store.jdbc_url is wrong: its port is not a number")


def test_bad_port_is_2_and_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    file = file_of(_with_store("postgresql", POSTGRESQL[0]))

    assert main(["doctor", "--config", str(file)]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith(f"duesweep: {file}:3: store.dsn is wrong: its port")


@pytest.mark.parametrize(
    ("kind", "dsn"),
    [
        ("postgresql", "postgresql://u:p%40ss@h:5432/db"),
        ("postgresql", "postgresql://h/db"),
        ("postgresql", "postgresql:///db"),
        ("postgresql", "postgresql://u@h:/db"),
        ("postgresql", "postgresql://h1,h2:5433/db?sslmode=require"),
        ("postgresql", "postgresql://%2Frun%2Fpostgresql/db"),
        ("postgresql", "postgresql://[2001:db8::7]/db"),
        ("postgresql", "host=h dbname=db password='x port=abc'"),
        ("postgresql", "host=h1,h2 port=,5433"),
        ("postgresql", "service=sales"),
        ("sqlserver", "Server=h;Database=db"),
        ("sqlserver", "Server=tcp:h\\instance,1433;Database=db"),
        ("sqlserver", "Server=tcp:h, 1433 ;Database=db"),
        ("sqlserver", "Database=db;Pwd={a;Server=h,abc};Server=h"),
        ("sqlserver", "DSN=sales;Database=db"),
    ],
)
def test_other_dsns_are_left_alone(kind: str, dsn: str) -> None:
    load(file_of(_with_store(kind, dsn)))


@pytest.mark.parametrize("url", ["amqp://h", "amqp://h:5672/%2F", "amqps://u:p@[::1]:5671/v"])
def test_other_urls_are_left_alone(url: str) -> None:
    load(file_of(f'{MINIMAL}[queues.main]\nkind = "rabbitmq"\nurl = "{url}"\n{ROUTED}'))
