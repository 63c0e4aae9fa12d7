"""Stores of every kind, their queue connections and routes, as they are configured; an MSMQ store
without routes, whose addresses have machines, which queue tables do not know.
"""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from duesweep.config import Config, load, mask_secrets, route_notice
from duesweep.core.errors import Problem
from duesweep.core.finding import Check, Severity
from duesweep.operations.doctor import route_findings
from duesweep.operations.look import Look
from support.commands import run
from support.config_files import MINIMAL, SQL_SERVER, file_of

ODBC = "Driver=x;Server=db.example,1433;Database=nsb;Uid=sweeper;Pwd=s3cret;Encrypt=yes"
URL = "amqps://sweeper:s3cret@mq.example:5671/sales"
OTHER = "amqps://sweeper:0ther@mq2.example:5671/sales"
RABBITMQ = f'{MINIMAL}\n[queues.default]\nkind = "rabbitmq"\n'
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


def test_urls_come_from_the_environment_alone_or_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, urls in ((URL, (URL,)), (json.dumps([URL, OTHER]), (URL, OTHER))):
        monkeypatch.setenv("DUESWEEP_QUEUES__DEFAULT__URL", given)

        assert load(file_of(RABBITMQ)).queues["default"].urls == urls


def test_variable_is_for_the_connection_however_the_file_writes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DUESWEEP_QUEUES__EAST__URL", "amqp://east")
    text = '[queues.East]\nkind = "rabbitmq"\n[[route]]\ndestination = "*"\nconnection = "East"\n'

    assert load(file_of(MINIMAL + text)).queues["East"].urls == ("amqp://east",)


@pytest.mark.parametrize(
    ("written", "urls"), [(f'"{URL}"', (URL,)), (f'["{OTHER}", "{URL}"]', (OTHER, URL))]
)
def test_file_gives_one_url_or_several_in_their_order_and_they_are_masked(
    written: str, urls: tuple[str, ...]
) -> None:
    management = f'management_url = "{OTHER.replace("amqps", "https").removesuffix("sales")}"\n'
    config = load(file_of(f"{RABBITMQ}url = {written}\n{management}"))

    shown = json.dumps(mask_secrets(config)) + repr(config) + str(config) + config.model_dump_json()

    assert config.queues["default"].urls == urls
    for secret in ("s3cret", "0ther", "mq.example"):
        assert secret not in shown


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


def test_msmq_counts_its_own_retries() -> None:
    assert _msmq("store.number_of_retries=3").store.number_of_retries == 3
    assert _msmq().store.number_of_retries is None


SETTINGS = [
    "store.kind=msmq",
    "store.dsn=Server=db.example;Database=nsb;Trusted_Connection=yes",
    "store.endpoint=Sales.Orders",
    "ledger.root=/ledger",
]
ROUTE = '[[route]]\ndestination = "*"\nconnection = "main"\n[queues.main]\nkind = "sqlserver"\n'


GIVEN = [part for setting in SETTINGS for part in ("--set", setting)]


def test_doctor_finds_a_fault_and_none_where_there_is_a_route() -> None:
    (finding,) = route_findings(load(None, SETTINGS))

    assert (finding.check, finding.severity) == (Check.ROUTE, Severity.FAULT)
    assert finding.found == (
        "Without a [[route]], MSMQ's address Billing@HOST-2 is read as queue Billing in schema "
        "HOST-2 of the store's own server"
    )
    assert finding.advice == "add a [[route]] that says which queue it is"
    Path("routed.toml").write_text(ROUTE)
    assert route_findings(load(Path("routed.toml"), SETTINGS)) == []


def test_every_sweep_says_so_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    notices = [Problem("the store's own notice")]
    look = Look(has_work=False, needs_spark=False, notices=notices)
    monkeypatch.setattr("duesweep.operations.run.look_at", lambda *_, **__: nullcontext(look))

    ran = run("sweep", *GIVEN)

    first, second = ran.err.splitlines()
    assert ran.code == 0
    assert first.startswith("duesweep: Without a [[route]], MSMQ's address Billing@HOST-2 is read")
    assert second == "duesweep: the store's own notice"
