"""`rabbitmq send`: what it sends, prints and refuses, and its exit codes."""

import io
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from duesweep.core.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID
from duesweep.queues.rabbitmq.topology import DELAY_HEADER
from support.rabbitmq.broker import Broker
from support.rabbitmq.commands import run


@pytest.mark.parametrize("topology", ["conventional", "direct"])
def test_message_with_a_delay_arrives_later_as_it_was_given(
    broker: Broker, topology: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(broker, "endpoint", "create", "Billing", topology=topology) == 0
    capsys.readouterr()
    body = tmp_path / "body"
    body.write_bytes(b"\0\xff")
    options = [
        "--delay=1",
        "--message-id=order/42",
        "--message-type=Sales.Remind, Sales",
        "--header=NServiceBus.CorrelationId=c",
        "--header=Colour=a=b",
        f"--body-file={body}",
    ]

    began = time.monotonic()
    assert run(broker, "send", "Billing", *options, topology=topology) == 0
    ((_, properties, arrived),) = broker.take_all("Billing", 1)

    assert time.monotonic() - began >= 1
    assert capsys.readouterr().out == (
        "deferred to Billing, which gets it in 1.0 s; message id order/42\n"
    )
    headers = {n: v for n, v in properties.headers.items() if not n.startswith("x-")}
    assert headers == {
        MESSAGE_ID: "order/42",
        ENCLOSED_MESSAGE_TYPES: "Sales.Remind, Sales",
        "NServiceBus.CorrelationId": "c",
        "Colour": "a=b",
        DELAY_HEADER: 1,
    }
    assert (properties.message_id, properties.type) == ("order/42", "Sales.Remind")
    assert (properties.correlation_id, properties.delivery_mode) == ("c", 2)
    assert arrived == b"\0\xff"


def test_message_without_a_delay_is_sent_at_once_and_its_new_id_is_printed(
    billing: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"from stdin")))

    assert run(billing, "send", "Billing", "--body-file=-", "--time-to-be-received=1h") == 0

    ((_, properties, body),) = billing.take_all("Billing", 1)
    assert capsys.readouterr().out == f"sent to Billing; message id {properties.message_id}\n"
    assert (body, properties.expiration) == (b"from stdin", "3600000")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--delay=1h", "--time-to-be-received=1h"], "both a delay and a time to be received"),
        (["--delay=1h", "--header=NServiceBus.TimeToBeReceived=01:00:00"], "cannot have a delay"),
        (["--delay=268435456"], "cannot hold a message for 268,435,456 s"),
        (["--delay=9999999999"], "'9999999999s' is not a duration"),
        (["--delay=soon"], "'soon' is not a duration"),
        (["--body=x", "--body-file=y"], "--body and --body-file are both given"),
        (["--header=Colour"], "is not of the form NAME=VALUE"),
        (
            ["--message-id=1", f"--header={MESSAGE_ID}=2"],
            f"The header {MESSAGE_ID} is given twice",
        ),
        (["--connection=other"], "There is no connection other to RabbitMQ"),
    ],
)
def test_wrong_option_is_said_and_2_and_nothing_is_sent(
    billing: Broker, options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(billing, "send", "Billing", *options) == 2

    output = capsys.readouterr()
    assert says in output.err
    assert output.out == ""
    assert billing.count("Billing") == 0


@pytest.mark.parametrize("options", [[], ["--delay=1h"]])
def test_missing_endpoint_is_said_and_2(
    broker: Broker, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(broker, "delays", "create") == 0
    capsys.readouterr()

    assert run(broker, "send", "Nowhere", *options) == 2

    output = capsys.readouterr()
    assert output.err.startswith(
        "duesweep: Nothing was sent: There is no queue Nowhere on RabbitMQ"
    )
    assert "duesweep rabbitmq endpoint create" in output.err
    assert output.out == ""


def test_refused_message_is_3(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    broker.create("Billing", x_queue_type="classic", x_max_length=1, x_overflow="reject-publish")
    assert run(broker, "send", "Billing") == 0

    assert run(broker, "send", "Billing") == 3

    assert "RabbitMQ refused the message for Billing" in capsys.readouterr().err


def test_broker_out_of_reach_is_4(broker: Broker) -> None:
    assert run(broker, "send", "Billing", url="amqp://guest:guest@127.0.0.1:1/") == 4
