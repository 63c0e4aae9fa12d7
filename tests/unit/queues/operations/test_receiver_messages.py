"""The receiver: messages that are poison, for another queue, or short-lived."""

from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from duesweep.core.headers import FORWARD_DESTINATION, read_json, write_json
from duesweep.core.message import EXCEPTION_TYPE, FAILED_QUEUE
from duesweep.queues.operations import Receiver, ReceiverOptions
from support.memory_transport import MemoryTransport
from support.receiving import Handler, receive


@pytest.fixture
def transport() -> MemoryTransport:
    return MemoryTransport("Billing", "Other", "error")


def test_poison_goes_to_the_error_queue_as_it_is(transport: MemoryTransport) -> None:
    transport.put("Billing", "no JSON", "{}")
    handler = Handler()
    poison = transport.queues["Billing"][0]
    poison.body = b"\0"

    with capture_logs() as logs:
        receive(transport, handler)

    assert handler.handled == ["{}"]
    (moved,) = transport.queues["error"]
    assert (moved.id, moved.headers, moved.body) == (poison.id, "no JSON", b"\0")
    assert [log["event"] for log in logs] == ["poison"]


def test_delayed_message_goes_on_to_its_destination(transport: MemoryTransport) -> None:
    name = FORWARD_DESTINATION
    transport.put("Billing", f'{{"a":"b","{name}":"Other"}}', f'{{"c":"d","{name}":"Billing"}}')
    handler = Handler()

    receive(transport, handler)

    assert transport.headers("Other") == ['{"a":"b"}']
    # Its own: handled here.
    assert handler.handled == [f'{{"c":"d","{name}":"Billing"}}']


@pytest.mark.parametrize("destination", ["Nowhere", " "])
def test_delayed_message_without_a_way_goes_to_the_error_queue_with_the_reason(
    transport: MemoryTransport, destination: str
) -> None:
    name = FORWARD_DESTINATION
    transport.put("Billing", write_json({"a": "b", name: destination}))
    handler = Handler()

    receive(transport, handler)

    assert handler.handled == []
    headers = read_json(transport.headers("error")[0])
    assert headers["a"] == "b"
    assert headers[FAILED_QUEUE] == destination
    assert str(headers[EXCEPTION_TYPE]).startswith("duesweep.errors.")
    assert name not in headers


def test_peek_delay_beyond_a_time_to_be_received_is_cautioned_about_once(
    transport: MemoryTransport,
) -> None:
    short = '{"NServiceBus.TimeToBeReceived":"00:00:00.5000000"}'
    transport.put("Billing", short, short, '{"NServiceBus.TimeToBeReceived":"00:00:01"}')

    with capture_logs() as logs:
        receive(transport, Handler())

    assert len(logs) == 1
    assert "longer than the time to be received of 0.5 s" in logs[0]["caution"]


def test_peek_delay_that_is_not_recommended_is_cautioned_about() -> None:
    options = ReceiverOptions(peek_delay=timedelta(seconds=11))

    with capture_logs() as logs:
        Receiver(MemoryTransport(), "Billing", "error", options)

    assert [(log["log_level"], log["queue"]) for log in logs] == [("warning", "Billing")]
    assert "11 s is not recommended" in logs[0]["caution"]
