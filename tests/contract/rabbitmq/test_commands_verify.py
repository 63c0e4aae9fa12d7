"""`delays verify` finds each harm that is done to a delay ladder, and nothing else."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from broker import Broker
from broker_server import BrokerServer
from contract.rabbitmq.commands import run
from waiting import until

from duesweep.queues.rabbitmq import ladder

pytestmark = pytest.mark.services

_LEVEL, _BELOW = ladder.level_name(3), ladder.level_name(2)
_FIRST = ladder.level_name(3, ladder.FIRST_PREFIX)
_KEY = "*." * 24 + "1.#"


@pytest.fixture(scope="module")
def shared(broker_server: BrokerServer) -> Iterator[Broker]:
    """A vhost with a ladder and two endpoints, which every test leaves as it was."""
    broker = Broker(broker_server, "verified")
    assert run(broker, "endpoint", "create", "Billing", "Sales.Orders") == 0
    yield broker
    broker.close()


def _verify(
    broker: Broker, capsys: pytest.CaptureFixture[str], **settings: Any
) -> tuple[int, list[dict[str, Any]]]:
    capsys.readouterr()
    code = run(broker, "delays", "verify", "--json", **settings)
    return code, json.loads(capsys.readouterr().out)["findings"]


def _bad(findings: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(f["check"], f["about"]) for f in findings if f["severity"] in {"fault", "warning"}}


def test_good_ladder_is_0(shared: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    code, findings = _verify(shared, capsys)

    assert (code, _bad(findings)) == (0, set())
    assert {finding["check"] for finding in findings} == {
        "server-reachable", "server-version", "feature-flags", "broker-alarms", "ladder-exchange",
        "ladder-queue", "ladder-policy", "ladder-binding", "delivery-binding", "ladder-waiting",
        "first-ladder",
    }  # fmt: skip
    assert {finding["severity"] for finding in findings} == {"ok"}


def test_without_the_management_api_it_says_what_it_did_not_see(
    shared: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    code, findings = _verify(shared, capsys, management_url=None)

    assert (code, _bad(findings)) == (0, set())
    (unseen,) = [f for f in findings if f["severity"] == "skipped"]
    assert unseen["about"] == "queues.default.management_url"
    assert "AMQP does not tell of bindings" in unseen["found"]


def test_text_has_findings_and_their_count(
    shared: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(shared, "delays", "verify") == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "ok: 11"


@dataclass(frozen=True)
class Harm:
    """`name`, what it does to a vhost, what is said then, and how that is taken back."""

    name: str
    harm: Callable[[Broker], object]
    said: set[tuple[str, str]]
    mend: Callable[[Broker], object] = lambda _: None
    by_amqp: bool = True


def _delete_queue(broker: Broker) -> None:
    broker.channel.queue_delete(_LEVEL)


def _replace_queue(broker: Broker, **changed: Any) -> None:
    wanted = {queue.name: queue.arguments for queue in ladder.ladder().queues}[_LEVEL]
    arguments = {**wanted, **{name.replace("_", "-"): value for name, value in changed.items()}}
    kept = {name: value for name, value in arguments.items() if value is not None}
    broker.channel.queue_delete(_LEVEL)
    broker.channel.queue_declare(_LEVEL, durable=True, arguments=kept)
    broker.channel.queue_bind(_LEVEL, _LEVEL, _KEY)


def _replace_delivery(broker: Broker) -> None:
    broker.channel.exchange_delete(ladder.DELIVERY_EXCHANGE)
    broker.channel.exchange_declare(ladder.DELIVERY_EXCHANGE, "fanout", durable=True)
    broker.channel.exchange_bind(ladder.DELIVERY_EXCHANGE, ladder.level_name(0), "*." * 27 + "0.#")


def _policy(broker: Broker) -> None:
    definition = {"max-length": 10, "message-ttl": 5_000, "dead-letter-exchange": "elsewhere"}
    path = "policies/{vhost}/short"
    broker.api(path, "PUT", {"pattern": f"^{_LEVEL}$", "definition": definition})
    until(lambda: broker.api("queues/{vhost}/" + _LEVEL).get("policy") == "short")


def _first_ladder(broker: Broker) -> None:
    broker.channel.queue_declare(_FIRST, durable=True)
    broker.channel.confirm_delivery()
    broker.channel.basic_publish("", _FIRST, b"")
    until(lambda: broker.api("queues/{vhost}/" + _FIRST).get("messages") == 1)


_HARMS = [
    Harm("missing queue", _delete_queue, {("ladder-queue", _LEVEL), ("ladder-binding", _LEVEL)}),
    Harm(
        "missing exchange",
        lambda broker: broker.channel.exchange_delete(_LEVEL),
        {
            ("ladder-exchange", _LEVEL),
            ("ladder-binding", _LEVEL),
            ("ladder-binding", ladder.level_name(4)),
        },
    ),
    Harm(
        "wrong ttl",
        lambda broker: _replace_queue(broker, x_message_ttl=9_000),
        {("ladder-queue", _LEVEL)},
        _delete_queue,
    ),
    Harm(
        "one argument more",
        lambda broker: _replace_queue(broker, x_max_length=1_000),
        {("ladder-queue", _LEVEL)},
        _delete_queue,
    ),
    Harm(
        "classic queue",
        lambda broker: _replace_queue(broker, x_queue_type=None, x_dead_letter_strategy=None),
        {("ladder-queue", _LEVEL)},
        _delete_queue,
    ),
    Harm(
        "missing binding",
        lambda broker: broker.channel.queue_unbind(_LEVEL, _LEVEL, _KEY),
        {("ladder-binding", _LEVEL)},
        by_amqp=False,
    ),
    Harm(
        "strange binding",
        lambda broker: broker.channel.exchange_bind("Billing", _LEVEL, "#"),
        {("ladder-binding", _LEVEL)},
        lambda broker: broker.channel.exchange_unbind("Billing", _LEVEL, "#"),
        by_amqp=False,
    ),
    Harm(
        "strange binding into a level",
        lambda broker: broker.channel.queue_bind(_LEVEL, "Billing"),
        {("ladder-binding", "Billing")},
        lambda broker: broker.channel.queue_unbind(_LEVEL, "Billing"),
        by_amqp=False,
    ),
    Harm(
        "delivery exchange of another type",
        _replace_delivery,
        {("ladder-exchange", ladder.DELIVERY_EXCHANGE)},
        lambda broker: broker.channel.exchange_delete(ladder.DELIVERY_EXCHANGE),
    ),
    Harm(
        "destination without a queue",
        lambda broker: broker.channel.queue_delete("Billing"),
        {("delivery-binding", "Billing")},
        by_amqp=False,
    ),
    Harm(
        "names that one key fits",
        lambda broker: run(broker, "endpoint", "create", "Orders"),
        {("delivery-binding", "Orders")},
        lambda broker: broker.delete("Orders"),
        by_amqp=False,
    ),
    Harm(
        "a key for everything",
        lambda broker: broker.channel.exchange_bind("Billing", ladder.DELIVERY_EXCHANGE, "#"),
        {("delivery-binding", "Billing")},
        lambda broker: broker.channel.exchange_unbind("Billing", ladder.DELIVERY_EXCHANGE, "#"),
        by_amqp=False,
    ),
    Harm(
        "policy",
        _policy,
        {("ladder-policy", _LEVEL)},
        lambda broker: broker.api("policies/{vhost}/short", "DELETE"),
        by_amqp=False,
    ),
    Harm(
        "messages on the first ladder",
        _first_ladder,
        {("first-ladder", "nsb.delay-…")},
        lambda broker: broker.channel.queue_delete(_FIRST),
    ),
]


@pytest.mark.parametrize("harm", _HARMS, ids=lambda harm: harm.name)
def test_harm_is_found_and_3(
    shared: Broker, capsys: pytest.CaptureFixture[str], harm: Harm
) -> None:
    harm.harm(shared)
    before = shared.definitions()
    try:
        code, findings = _verify(shared, capsys)
        by_amqp = _verify(shared, capsys, management_url=None)
        assert shared.definitions() == before
    finally:
        harm.mend(shared)
        assert run(shared, "endpoint", "create", "Billing", "Sales.Orders") == 0

    assert (code, _bad(findings)) == (3, harm.said)
    seen = {one for one in harm.said if one[0] != "ladder-binding"} if harm.by_amqp else set()
    assert (by_amqp[0], _bad(by_amqp[1])) == (3 if seen else 0, seen)
    assert all(f["advice"] for f in findings if f["severity"] in {"fault", "warning"})


def test_user_of_the_management_api_may_be_another(
    shared: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that may see a vhost, and nothing of the broker."""
    server = shared.server
    server.control("add_user", "looker", "p@ss/word")
    server.control("set_user_tags", "looker", "management")
    server.control("set_permissions", "-p", shared.vhost, "looker", "^$", "^$", ".*")
    url = f"http://looker:p%40ss%2Fword@127.0.0.1:{server.management}"

    code, findings = _verify(shared, capsys, management_url=url)

    assert (code, _bad(findings)) == (0, set())
    skipped = {finding["check"] for finding in findings if finding["severity"] == "skipped"}
    assert skipped <= {"feature-flags", "broker-alarms"}
    assert "broker-alarms" in skipped
    assert run(shared, "delays", "verify", management_url=url.replace("looker", "nobody")) == 2
    assert "answers 401" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "code", "says"),
    [
        ("http://127.0.0.1:1", 4, "cannot be reached"),
        ("127.0.0.1:15672", 2, "is not of the form"),
        ("http://127.0.0.1:{management}/nowhere", 2, "answers 404"),
        ("http://127.0.0.1:{amqp}", 4, "cannot be reached"),
    ],
)
def test_management_url_that_leads_nowhere_is_said(
    shared: Broker, capsys: pytest.CaptureFixture[str], url: str, code: int, says: str
) -> None:
    filled = url.format(management=shared.server.management, amqp=shared.server.amqp)

    assert run(shared, "delays", "verify", management_url=filled) == code
    assert says in capsys.readouterr().err
