"""Stores of every kind, their queue connections and routes, as they are configured."""

import pytest

from duesweep.config import Config, load, route_notice
from support.config_files import MINIMAL, file_of, refusal_of

ODBC = "Driver=x;Server=db.example,1433;Database=nsb;Uid=sweeper;Pwd=s3cret;Encrypt=yes"
SQL_SERVER = f"""
[store]
kind = "sqlserver"
dsn = "{ODBC}"
endpoint = "Sales.Orders"
[ledger]
root = "/ledger"
"""
ROUTED = f"""{SQL_SERVER}
[queues.main]
kind = "sqlserver"
[[route]]
destination = "*@*"
connection = "main"
queue = "{{queue}}"
[[route]]
destination = "[[]x]*"
connection = "main"
"""


def _msmq(*settings: str) -> Config:
    return load(file_of(SQL_SERVER), ["store.kind=msmq", *settings])


def test_routes_are_read_in_their_order() -> None:
    routes = load(file_of(ROUTED)).route

    assert [(r.destination, r.connection, r.queue) for r in routes] == [
        ("*@*", "main", "{queue}"),
        ("[[]x]*", "main", "{queue}"),
    ]


@pytest.mark.parametrize(
    ("settings", "schema"),
    [
        ([], "dbo"),
        (["store.kind=msmq"], "dbo"),
        (["store.kind=postgresql", "store.dsn=postgresql://db.example/nsb"], "public"),
        (["store.schema=other"], "other"),
    ],
)
def test_schema_is_the_transports_default_unless_it_is_set(
    settings: list[str], schema: str
) -> None:
    assert load(file_of(SQL_SERVER), settings).store.schema_name == schema


def test_secrets_of_sql_server_are_masked() -> None:
    config = load(file_of(SQL_SERVER), ["store.jdbc_url=jdbc:sqlserver://h;password=0ther"])

    shown = repr(config) + config.model_dump_json()

    assert "s3cret" not in shown
    assert "0ther" not in shown


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["store.writer_time_zone=UTC"], "store.writer_time_zone has no effect on a store of kind"),
        (["store.number_of_retries=1"], "store.number_of_retries has no effect"),
        (["store.kind=msmq", "retry.max_attempts=5"], "set store.number_of_retries"),
        (["sweep.batch_rows=1001"], "set it to at most 1000"),
        (["store.kind=msmq", "sweep.batch_rows=10000"], "sweep.batch_rows is 10000"),
        (["queues.main.kind=sqlserver"], "queues.main is not used; rename it to queues.default"),
        (["queues.default.kind=oracle"], "queues.default.kind is wrong"),
        (["store.transaction_mode=always"], "store.transaction_mode is wrong"),
    ],
)
def test_setting_that_cannot_be_meant_is_refused(settings: list[str], words: str) -> None:
    assert words in refusal_of(SQL_SERVER, *settings)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ('[[route]]\ndestination = "*"\nconnection = "mian"\n', "did you mean main?"),
        ('[[route]]\ndestination = "*"\nconnection = "x"\n', "add a section [queues.x]"),
        (
            '[queues.spare]\nkind = "sqlserver"\n',
            "queues.spare is not used; name it in a [[route]]",
        ),
        (
            '[[route]]\nconnection = "main"\n',
            "destination of [[route]] 3 is not set; give it in the configuration file",
        ),
        (
            '[[route]]\ndestination = "*"\nconnection = "main"\nqueue = "{que}"\n',
            "queue of [[route]] 3 is wrong: unknown placeholder {que}; use {queue}, {machine}",
        ),
        (
            '[[route]]\ndestination = "*"\nconnection = "main"\nqeue = "x"\n',
            "did you mean route.queue?",
        ),
    ],
)
def test_route_that_leads_nowhere_is_refused(more: str, words: str) -> None:
    refusal = refusal_of(ROUTED + more)

    assert words in refusal
    assert "DUESWEEP_ROUTE" not in refusal


def test_jdbc_url_means_nothing_to_postgresql() -> None:
    assert "store.jdbc_url has no effect" in refusal_of(MINIMAL, "store.jdbc_url=jdbc:x")


def test_options_are_a_custom_stores_own() -> None:
    options = '[store.options]\nfolder = "/data"\n'

    assert "store.options has no effect" in refusal_of(MINIMAL + options)
    kinds = ["store.kind=a.b:C", "queues.default.kind=postgresql"]
    custom = load(file_of(MINIMAL + options), kinds)
    assert custom.store.options == {"folder": "/data"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ([], "Billing@HOST-2 is read as queue Billing in schema HOST-2 of the store's own server"),
        (
            [f"queues.default.dsn={ODBC}", "queues.default.kind=sqlserver"],
            "in schema HOST-2 of the server of queues.default",
        ),
        (
            ["queues.default.dsn=postgresql://q/q", "queues.default.kind=postgresql"],
            'is read as queue "Billing@HOST-2" of the server of queues.default',
        ),
    ],
)
def test_msmq_without_a_route_is_told_how_its_addresses_are_read(
    settings: list[str], words: str
) -> None:
    found = route_notice(_msmq(*settings))

    assert found is not None
    notice = str(found)
    assert words in notice
    assert "; add a [[route]]" in notice
    assert "s3cret" not in notice


def test_nobody_else_is_told_how_addresses_are_read() -> None:
    assert route_notice(load(file_of(MINIMAL))) is None
    assert route_notice(load(file_of(SQL_SERVER))) is None
    assert route_notice(load(file_of(ROUTED), ["store.kind=msmq"])) is None


@pytest.mark.parametrize("kind", ["oracle", "a.b", "a.b:", ":C", "a b:C", "a:b:c"])
def test_kind_that_is_no_store_is_refused(kind: str) -> None:
    assert "store.kind is wrong" in refusal_of(MINIMAL, f"store.kind={kind}")


def test_msmq_counts_its_own_retries() -> None:
    assert _msmq("store.number_of_retries=3").store.number_of_retries == 3
    assert _msmq().store.number_of_retries is None
