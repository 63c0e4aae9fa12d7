"""Every message ends: one that the error queue refuses is kept in `errors`, without the copy there;
if the error queue is away, no attempt is counted.
"""

import json
from collections.abc import Mapping, Sequence

import pytest

from support.endpoint import ON_BOTH_SERVERS, Endpoint
from support.rabbitmq.broker import Broker
from support.rabbitmq.commands import settings

_SWEEPS = 3
_TWICE = {
    "retry__error_queue": "error",
    "retry__max_attempts": 2,
    "retry__initial_seconds": 0,
    "retry__max_seconds": 0,
}
_CHECKS = {
    "postgresql": "ALTER TABLE {error} ADD CHECK (octet_length(headers) < {most})",
    "sqlserver": "ALTER TABLE {error} ADD CHECK (LEN(Headers) < {most})",
}
_NO_DEFAULT = {
    "postgresql": "ALTER TABLE {error} ADD COLUMN tenant text NOT NULL",
    "sqlserver": "ALTER TABLE {error} ADD tenant nvarchar(9) NOT NULL",
}


def _headers(destination: str, **more: str) -> str:
    forward = {"NServiceBus.SqlServer.ForwardDestination": destination}
    return json.dumps({"NServiceBus.MessageId": "m1"} | more | forward, separators=(",", ":"))


def _swept(endpoint: Endpoint) -> list[tuple[int, int]]:
    """How many messages each sweep failed and exhausted; the last sweeps find none."""
    documents = []
    for _ in range(_SWEEPS):
        ran = endpoint.run("sweep", "--json")
        documents.append((ran.document["failed"], ran.document["exhausted"]))
        endpoint.end_back_off()
    return documents


def _only_error(endpoint: Endpoint) -> Mapping[str, object]:
    (group,) = endpoint.document("errors", "list")["groups"]
    assert group["count"] == 1
    return group


@ON_BOTH_SERVERS
@pytest.mark.parametrize(
    ("harm", "most"), [(_CHECKS, 1_000), (_NO_DEFAULT, 0)], ids=["check", "unknown column"]
)
def test_message_that_an_error_table_refuses_ends_in_the_ledger_and_can_be_replayed(
    harm: Mapping[str, str], most: int, endpoint: Endpoint
) -> None:
    swept = endpoint.having(**_TWICE).set_up("Billing")
    swept.execute(harm[swept.kind].format(error=swept.table("error"), most=most))
    swept.delay(headers=_headers("Nowhere", Big="x" * 2_000))
    swept.delay_many(3)

    assert _swept(swept) == [(1, 0), (0, 1), (0, 0)]

    assert (swept.waiting(), swept.attempts(), swept.queue_rows("error")) == ([], {}, [])
    assert len(swept.queue_rows("Billing")) == 3
    assert "the error queue refused the message" in str(_only_error(swept))
    swept.create_queue("Nowhere")
    assert swept.document("errors", "replay", "--all", "--reason", "x", "--yes")["changed"] == 1
    assert swept.document("sweep")["dispatched"] == 1
    assert len(swept.queue_rows("Nowhere")) == 1


@ON_BOTH_SERVERS
def test_error_table_gets_a_shorter_copy_of_a_message_that_it_refused(endpoint: Endpoint) -> None:
    swept = endpoint.having(**_TWICE).set_up()
    swept.execute(_CHECKS[swept.kind].format(error=swept.table("error"), most=1_200))
    swept.delay(headers=_headers("Nowhere"))

    assert _swept(swept) == [(1, 0), (0, 1), (0, 0)]

    assert len(swept.queue_rows("error")) == 1
    assert "refused" not in str(_only_error(swept))


def test_locked_error_table_is_an_outage_and_counts_no_attempt(endpoint: Endpoint) -> None:
    swept = endpoint.having(**_TWICE | {"retry__max_attempts": 1}).set_up("Billing")
    swept.delay("Nowhere")
    swept.delay("Billing")

    with swept.server.locked(swept.addresses.parse("error")):
        document = swept.document("sweep", code=4)

    assert (document["dispatched"], document["failed"], document["exhausted"]) == (1, 0, 0)
    assert (len(swept.waiting()), swept.attempts()) == (1, {})
    assert "error" in str(document["reason"] or document["breakers"])
    assert swept.document("sweep", code=3)["exhausted"] == 1


_TOO_MUCH_FOR_AMQP: Sequence[dict[str, str]] = (
    {"CC": "a@example.com"},
    {"BCC": ""},
    {"Big": "x" * 200_000},
    {"n" * 300: "a name"},
)


@pytest.mark.xdist_group("rabbitmq")
def test_messages_that_rabbitmq_cannot_carry_end_in_the_ledger_and_cost_no_other(
    endpoint: Endpoint, broker: Broker
) -> None:
    swept = endpoint.having(**_TWICE, **settings(broker)).set_up()
    broker.create("Billing")
    # Some are sent before each, in the same batch.
    for headers in _TOO_MUCH_FOR_AMQP:
        swept.delay_many(15)
        swept.delay(headers=_headers("Billing", **headers))
    swept.delay_many(4)
    count = len(_TOO_MUCH_FOR_AMQP)

    assert _swept(swept) == [(count, 0), (0, count), (0, 0)]

    assert (swept.waiting(), swept.attempts()) == ([], {})
    assert len(broker.take("Billing")) == 15 * count + 4
    assert broker.take("error") == []
    errors = swept.ledger.rows("errors")
    assert len(errors) == count
    assert all("the error queue refused the message" in row.error_text for row in errors)


@pytest.mark.xdist_group("rabbitmq")
def test_full_error_queue_is_an_outage_and_counts_no_attempt(
    endpoint: Endpoint, broker: Broker
) -> None:
    swept = endpoint.having(**_TWICE | settings(broker) | {"retry__max_attempts": 1}).set_up()
    broker.delete("error")
    broker.create("error", x_max_length=1, x_overflow="reject-publish", x_queue_type="classic")
    broker.channel.basic_publish("", "error", b"full")
    swept.delay_many(2, ["Nowhere"])

    document = swept.document("sweep", code=4)

    assert (document["failed"], document["exhausted"], swept.attempts()) == (0, 0, {})
    assert "full" in str(document["reason"] or document["breakers"])
    broker.channel.queue_purge("error")
    assert len(swept.waiting()) == 2
