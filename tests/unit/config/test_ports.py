"""Ports that no server can have are refused with the configuration, before any connection."""

import re

import pytest

from duesweep.config import load
from support.config_files import MINIMAL, file_of, refusal_of

OWN = "postgresql://sweeper:s3cret@db.example:5432/sales"
ROUTED = '[[route]]\ndestination = "*"\nconnection = "main"\n'
REFUSED = (
    r"(is wrong: its port|is wrong: the dsn has a port that|has a port that) "
    "is not a number from 1 to 65535"
)

POSTGRESQL = [
    *("postgresql://u@h:abc/db", "postgres://u:s3cret@h:99999/db", "postgresql://u@h:0/db"),
    *("postgresql://u@h1:5432,h2:x/db", "postgresql://u@[::1]:abc/db"),
    *("postgresql://u:s3cret@w0rd:x@h/db", "postgresql://u@h/db?port=abc"),
    *("host=h port=abc dbname=db", "host=h port = '65536' dbname=db"),
    "host=h1,h2 port=5432,x dbname=db",
]
SQL_SERVER = [
    *("Server=h,abc;Database=db;Uid=u;Pwd=s3cret", "Server=tcp:h,99999;Database=db"),
    *("Server={h\\i,0};Database=db", "Driver=x;ADDRESS = h,1e3 ;Database=db"),
]
AMQP = ["amqp://u:s3cret@h:abc/", "amqps://u@h:99999/v", "amqp://h:0", "amqp://[::1]:x"]


def _with_store(kind: str, dsn: str) -> str:
    return MINIMAL.replace(f'"{OWN}"', f"'''{dsn}'''\nkind = \"{kind}\"")


def _queue(kind: str, *lines: str) -> str:
    return "\n".join([MINIMAL, "[queues.main]", f'kind = "{kind}"', *lines, ROUTED])


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        *(("store.dsn", _with_store("postgresql", dsn)) for dsn in POSTGRESQL),
        *(("store.dsn", _with_store("sqlserver", dsn)) for dsn in SQL_SERVER),
        ("queues.main.dsn", _queue("postgresql", f"dsn = '''{POSTGRESQL[0]}'''")),
        ("queues.main.dsn", _queue("sqlserver", f"dsn = '''{SQL_SERVER[0]}'''")),
        *(("queues.main.url", _queue("rabbitmq", f'url = "{url}"')) for url in AMQP),
        *(("queues.main.url", _queue("rabbitmq", f'url = ["amqp://o", "{url}"]')) for url in AMQP),
        (
            "store.jdbc_url",
            _with_store("sqlserver", "Server=h;Database=db").replace(
                "\n[ledger]", "jdbc_url = 'jdbc:sqlserver://h:abc;encrypt=true'\n[ledger]"
            ),
        ),
        (
            "queues.main.management_url",
            _queue("rabbitmq", 'url = "amqp://h"', 'management_url = "http://h:x"'),
        ),
    ],
)
def test_bad_port_is_a_wrong_setting(setting: str, text: str) -> None:
    refusal = refusal_of(text)

    assert re.match(f"{re.escape(setting)} {REFUSED}", refusal)
    assert "s3cret" not in refusal
    assert "w0rd" not in refusal


@pytest.mark.parametrize(
    "text",
    [
        *(
            _with_store("postgresql", dsn)
            for dsn in (
                *("postgresql://u:p%40ss@h:5432/db", "postgresql://h/db", "postgresql:///db"),
                *("postgresql://u@h:/db", "postgresql://h1,h2:5433/db?sslmode=require"),
                *("postgresql://%2Frun%2Fpostgresql/db", "postgresql://[2001:db8::7]/db"),
                *("host=h dbname=db password='x port=abc'", "host=h1,h2 port=,5433"),
                "service=sales",
            )
        ),
        *(
            _with_store("sqlserver", dsn)
            for dsn in (
                *("Server=h;Database=db", "Server=tcp:h\\instance,1433;Database=db"),
                *("Server=tcp:h, 1433 ;Database=db", "DSN=sales;Database=db"),
                "Database=db;Pwd={a;Server=h,abc};Server=h",
            )
        ),
        *(
            _queue("rabbitmq", f'url = "{url}"')
            for url in ("amqp://h", "amqp://h:5672/%2F", "amqps://u:p@[::1]:5671/v")
        ),
    ],
)
def test_others_are_left_alone(text: str) -> None:
    load(file_of(text))
