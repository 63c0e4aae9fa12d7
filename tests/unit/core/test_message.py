"""The facts of a claimed message, sendable messages, received rows, and messages
that the ledger kept, as they are stored again.
"""

import tracemalloc
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from duesweep.core.errors import ConfigError, QueueNotFoundError, UnreadableHeadersError
from duesweep.core.exhausted import KeptMessage, as_stored
from duesweep.core.headers import (
    FORWARD_DESTINATION,
    PROPERTY_PREFIX,
    read_json,
    read_xml,
    write_json,
    write_xml,
)
from duesweep.core.message import (
    ENCLOSED_MESSAGE_TYPES,
    FAILED_QUEUE,
    MESSAGE_ID,
    Message,
    fault_headers,
    first_type,
)
from duesweep_testing.builders import (
    BODY,
    DUE,
    ENDPOINT,
    DelayedRow,
    delayed_row,
    headers_text,
    message,
)
from duesweep_transport.values import OutgoingMessage, ReceivedMessage
from support import recordings

SECOND = timedelta(seconds=1)
ID = UUID(int=1)


@pytest.mark.parametrize(
    ("types", "first"),
    [
        ("Sales.A, Sales, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null", "Sales.A"),
        ("Sales.A, Sales;Sales.B, Sales", "Sales.A"),
        ("Sales.A;Sales.B", "Sales.A"),
        ("Sales.A", "Sales.A"),
        (" Sales.A , Sales", "Sales.A"),
        ("", None),
        (None, None),
    ],
)
def test_message_type_is_the_first_enclosed_type_without_its_assembly(
    types: str | None, first: str | None
) -> None:
    assert message(delayed_row(more={ENCLOSED_MESSAGE_TYPES: types})).message_type == first


def test_id_and_type_are_those_of_the_headers_if_there_are_any() -> None:
    assert message(delayed_row(more={MESSAGE_ID: "order/42"})).message_id == "order/42"
    unreadable = Message("1", 0, UnreadableHeadersError("no JSON"), "{", b"", None)
    for claimed in (message(DelayedRow(headers="{}")), unreadable):
        assert (claimed.message_id, claimed.message_type) == (None, None)


def test_body_bytes_are_the_bodys_length() -> None:
    bodies = (None, b"", b"\0\1")

    assert [message(delayed_row(body=body)).body_bytes for body in bodies] == [0, 0, 2]


def test_types_of_300_kb_are_not_kept_in_memory() -> None:
    tracemalloc.start()
    try:
        for number in range(100):
            types = f"Sales.A{number}, {'x' * 300_000}"
            assert first_type(types) == f"Sales.A{number}"
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < 2_000_000


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


@pytest.mark.parametrize(
    ("headers", "column", "expected"),
    [
        ('{"NServiceBus.CorrelationId":"c2"}', "c1", {"NServiceBus.CorrelationId": "c2"}),
        ('{"NServiceBus.CorrelationId":"c2"}', "", {"NServiceBus.CorrelationId": "c2"}),
        ("{}", "", {}),
        ("{}", None, {}),
    ],
)
def test_columns_replace_no_headers_and_empty_ones_are_none(
    headers: str, column: str | None, expected: dict[str, str]
) -> None:
    message = ReceivedMessage.read(ID, headers, None, {"NServiceBus.CorrelationId": column})

    assert message.headers == expected


def test_columns_make_no_poison_readable() -> None:
    message = ReceivedMessage.read(ID, "[]", None, {"NServiceBus.CorrelationId": "c1"})

    assert message.is_poison


# With unusual white space, escapes and a null, which all have to stay.
_FORWARD = f'"{FORWARD_DESTINATION}":"Billing"'
_ODD = '{ "a" : "\\t\\/" ,' + _FORWARD + ', "b":null }'


def _kept(text: str, destination: str | None = "Billing", body: bytes | None = BODY) -> KeptMessage:
    return KeptMessage("1", destination, {}, text, body)


# Except ones that an endpoint has sent with fault headers.
_RECORDED = [row for row in recordings.delayed_rows() if FAILED_QUEUE not in row.headers]


@pytest.mark.parametrize("row", _RECORDED, ids=lambda row: row.key)
def test_recorded_messages_are_as_their_store_had_them(row: recordings.DelayedRow) -> None:
    delivered = message(row)
    kept = KeptMessage(
        row.key, delivered.destination or ENDPOINT, delivered.headers, row.headers, row.body
    )

    found = as_stored(kept, ENDPOINT)

    assert (found.headers, found.headers_text) == (read_json(row.headers), row.headers)
    assert (found.destination, found.body) == (delivered.destination, row.body)


def test_headers_stay_byte_for_byte() -> None:
    found = as_stored(_kept(_ODD), ENDPOINT)

    assert (found.destination, found.headers_text) == ("Billing", _ODD)


def test_message_for_the_endpoint_itself_has_no_destination() -> None:
    text = headers_text(None)

    found = as_stored(_kept(text, ENDPOINT), ENDPOINT)

    assert (found.destination, found.headers_text) == (None, text)


def test_destination_of_a_column_goes_with_unchanged_headers() -> None:
    # As SQL persistence has it, and the header is one of the message's own.
    found = as_stored(_kept(_ODD, "Shipping"), ENDPOINT)

    assert (found.destination, found.headers_text) == ("Shipping", _ODD)


def test_msmq_headers_keep_their_dispatch_properties() -> None:
    own = {MESSAGE_ID: "m", "null": None, "lines": "a\nb", "ü": "<&>\x01"}
    stored = own | {PROPERTY_PREFIX + "TimeToBeReceived": "00:01:00"}
    text = write_xml(stored).decode()

    found = as_stored(_kept(text), ENDPOINT)

    assert (found.destination, found.headers, found.headers_text) == ("Billing", stored, text)


def test_msmq_headers_may_be_no_bytes_at_all() -> None:
    found = as_stored(_kept(""), ENDPOINT)

    assert (found.headers, found.headers_text) == ({}, "")


@pytest.mark.parametrize("is_xml", [False, True], ids=["json", "xml"])
def test_fault_headers_are_left_out_and_others_stay_in_order(*, is_xml: bool) -> None:
    faults = fault_headers(QueueNotFoundError("x"), "Billing", DUE)
    faults |= {"NServiceBus.ExceptionInfo.Data.Number": "1"}
    headers = read_json(headers_text("Billing", {"b": "2", **faults, "a": "1"}))
    text = write_xml(headers).decode() if is_xml else write_json(headers)

    found = as_stored(_kept(text), ENDPOINT)

    read = read_xml(found.headers_text.encode()) if is_xml else read_json(found.headers_text)
    assert found.headers == read == {k: v for k, v in headers.items() if k not in faults}
    assert list(read) == [name for name in headers if name not in faults]


@pytest.mark.parametrize("text", ["{broken", "[]", '{"a":1}', "<broken", "<a/>", ""])
def test_unreadable_headers_are_the_message_s_fault(text: str) -> None:
    kept = replace(_kept(text), headers=None)

    found = as_stored(kept, ENDPOINT)

    assert isinstance(found.headers, UnreadableHeadersError)
    assert found.headers_text == text
