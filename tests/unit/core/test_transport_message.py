"""What can be sent, and what a received row says."""

from datetime import timedelta
from uuid import UUID

import pytest

from duesweep.core.transport_message import OutgoingMessage, ReceivedMessage
from duesweep.errors import ConfigError, UnreadableHeadersError

SECOND = timedelta(seconds=1)
ID = UUID(int=1)


def test_delay_together_with_a_time_to_be_received_is_refused() -> None:
    with pytest.raises(ConfigError, match="leave one of the two out"):
        OutgoingMessage({}, None, time_to_be_received=SECOND, delay=SECOND)
    with pytest.raises(ConfigError, match="leave one of the two out"):
        OutgoingMessage({}, None, time_to_be_received=SECOND, delay=timedelta())


@pytest.mark.parametrize("name", ["time_to_be_received", "delay"])
@pytest.mark.parametrize("duration", [-SECOND, timedelta(days=24_856)])
def test_times_that_no_server_takes_are_refused(name: str, duration: timedelta) -> None:
    with pytest.raises(ConfigError, match="from 0 to 24855 days"):
        OutgoingMessage({}, None, **{name: duration})


def test_message_that_would_expire_at_once_is_refused() -> None:
    with pytest.raises(ConfigError, match="below 1 ms"):
        OutgoingMessage({}, None, time_to_be_received=timedelta(microseconds=999))
    assert OutgoingMessage({}, None, delay=timedelta()).delay == timedelta()


def test_headers_that_cannot_be_read_are_a_value() -> None:
    message = ReceivedMessage.read(ID, '{"a":1}', b"body")

    assert message.is_poison
    assert isinstance(message.headers, UnreadableHeadersError)
    assert message.headers_text == '{"a":1}'
    assert message.forward_destination is None
    assert message.time_to_be_received is None


def test_received_message_says_where_it_goes_on_to_and_how_long_it_lived() -> None:
    text = (
        '{"NServiceBus.TimeToBeReceived":"00:00:30",'
        '"NServiceBus.SqlServer.ForwardDestination":"Billing"}'
    )
    message = ReceivedMessage.read(ID, text, None)

    assert not message.is_poison
    assert message.forward_destination == "Billing"
    assert message.time_to_be_received == timedelta(seconds=30)


def test_columns_of_version_1_fill_what_the_headers_lack() -> None:
    columns = {"NServiceBus.CorrelationId": "c1", "NServiceBus.ReplyToAddress": "Sales"}

    message = ReceivedMessage.read(ID, '{"a":"b","NServiceBus.ReplyToAddress":null}', None, columns)

    assert message.headers == {"a": "b", **columns}
    assert message.headers_text == '{"a":"b","NServiceBus.ReplyToAddress":null}'


@pytest.mark.parametrize("column", ["c1", "", None])
def test_headers_are_never_replaced_by_columns(column: str | None) -> None:
    columns = {"NServiceBus.CorrelationId": column}

    message = ReceivedMessage.read(ID, '{"NServiceBus.CorrelationId":"c2"}', None, columns)

    assert message.headers == {"NServiceBus.CorrelationId": "c2"}


@pytest.mark.parametrize("column", ["", None])
def test_empty_columns_are_no_headers(column: str | None) -> None:
    message = ReceivedMessage.read(ID, "{}", None, {"NServiceBus.CorrelationId": column})

    assert message.headers == {}


def test_columns_make_no_poison_readable() -> None:
    message = ReceivedMessage.read(ID, "[]", None, {"NServiceBus.CorrelationId": "c1"})

    assert message.is_poison
