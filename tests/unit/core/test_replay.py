"""Messages that the ledger kept, as they are delivered again."""

from dataclasses import replace

import pytest

from duesweep.core.errors import QueueNotFoundError, UnreadableHeadersError
from duesweep.core.exhausted import KeptMessage, make_replayable
from duesweep.core.headers import (
    FORWARD_DESTINATION,
    PROPERTY_PREFIX,
    read_json,
    write_json,
    write_xml,
)
from duesweep.core.message import FAILED_QUEUE, MESSAGE_ID, fault_headers
from duesweep_testing.builders import BODY, DUE, ENDPOINT, headers_text, message
from support import recordings

# With unusual white space, escapes and a null, which all have to stay.
_FORWARD = f'"{FORWARD_DESTINATION}":"Billing"'
_ODD = '{ "a" : "\\t\\/" ,' + _FORWARD + ', "b":null }'


def _kept(text: str, destination: str | None = "Billing", body: bytes | None = BODY) -> KeptMessage:
    return KeptMessage("1", destination, {}, text, body)


# But for those that an endpoint has sent with fault headers.
_RECORDED = [row for row in recordings.delayed_rows() if FAILED_QUEUE not in row.headers]


@pytest.mark.parametrize("row", _RECORDED, ids=lambda row: row.key)
def test_recorded_messages_are_as_in_a_delivery(row: recordings.DelayedRow) -> None:
    delivered = message(row)
    kept = KeptMessage(
        row.key, delivered.destination or ENDPOINT, delivered.headers, row.headers, row.body
    )

    found = make_replayable(kept, ENDPOINT)

    assert found.message == delivered._replace(due_us=None, instant_us=None)
    assert found.stored_text == row.headers


def test_other_members_of_the_headers_stay_byte_for_byte() -> None:
    found = make_replayable(_kept(_ODD), ENDPOINT)

    assert found.message.headers_text == '{ "a" : "\\t\\/" , "b":null }'
    assert (found.message.destination, found.stored_text) == ("Billing", _ODD)


def test_message_for_the_endpoint_itself_has_no_destination() -> None:
    text = headers_text(None)

    found = make_replayable(_kept(text, ENDPOINT), ENDPOINT)

    assert (found.message.destination, found.message.headers_text) == (None, text)


def test_destination_of_a_column_goes_with_unchanged_headers() -> None:
    # As SQL persistence has it, and the header is one of the message's own.
    found = make_replayable(_kept(_ODD, "Shipping"), ENDPOINT)

    assert (found.message.destination, found.message.headers_text) == ("Shipping", _ODD)


def test_msmq_headers_travel_as_json_without_dispatch_properties() -> None:
    own = {MESSAGE_ID: "m", "null": None, "lines": "a\nb", "ü": "<&>\x01"}
    stored = own | {PROPERTY_PREFIX + "TimeToBeReceived": "00:01:00"}
    text = write_xml(stored).decode()

    found = make_replayable(_kept(text), ENDPOINT)

    assert (found.message.headers, found.message.headers_text) == (own, write_json(own))
    assert (found.message.destination, found.stored, found.stored_text) == ("Billing", stored, text)


def test_msmq_headers_may_be_no_bytes_at_all() -> None:
    found = make_replayable(_kept(""), ENDPOINT)

    assert (found.message.headers, found.message.headers_text) == ({}, "{}")


@pytest.mark.parametrize("body", [None, b"", b"\xff\x00"])
def test_body_stays_as_it_was(body: bytes | None) -> None:
    assert make_replayable(_kept(_ODD, body=body), ENDPOINT).message.body == body


def test_fault_headers_are_left_out_and_others_stay_in_order() -> None:
    faults = fault_headers(QueueNotFoundError("x"), "Billing", DUE)
    faults |= {"NServiceBus.ExceptionInfo.Data.Number": "1"}
    more = {"b": "2", **faults, "a": "1"}
    text = headers_text("Billing", more)

    found = make_replayable(_kept(text), ENDPOINT)

    without = read_json(found.message.headers_text)
    assert list(without)[-2:] == ["b", "a"]
    assert not [name for name in without if name in faults]
    assert found.stored == without | {FORWARD_DESTINATION: "Billing"}
    assert found.stored_text is None


@pytest.mark.parametrize("text", ["{broken", "[]", '{"a":1}', "<broken", "<a/>", ""])
def test_unreadable_headers_are_the_message_s_fault(text: str) -> None:
    kept = replace(_kept(text), headers=None)

    found = make_replayable(kept, ENDPOINT)

    assert isinstance(found.message.headers, UnreadableHeadersError)
    assert found.message.headers_text == text
