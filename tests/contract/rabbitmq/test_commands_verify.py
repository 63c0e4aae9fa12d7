"""`delays verify` finds each harm that is done to a delay ladder, and nothing else."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.rabbitmq.broker import Broker
from support.rabbitmq.broker_server import BrokerServer
from support.rabbitmq.commands import run
from support.rabbitmq.harms import HARMS, Harm
from support.waiting import until


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
    assert "AMQP does not tell about bindings" in unseen["found"]


def test_text_has_findings_and_their_count(
    shared: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(shared, "delays", "verify") == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "11 checks passed"


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.name)
def test_harm_is_found_and_3(
    shared: Broker, capsys: pytest.CaptureFixture[str], harm: Harm
) -> None:
    told = shared.told_of_queues()
    harm.harm(shared)
    before = shared.definitions()
    try:
        code, findings = _verify(shared, capsys)
        by_amqp = _verify(shared, capsys, management_url=None)
        assert shared.definitions() == before
    finally:
        harm.mend(shared)
        assert run(shared, "endpoint", "create", "Billing", "Sales.Orders") == 0
        # Or the next test would hear of it from the management API.
        until(lambda: shared.told_of_queues() == told)

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
