"""The headers of a message in the error queue, compared with the recorded one."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from duesweep.core.errors import MessageError, QueueNotFoundError, UnreadableHeadersError
from duesweep.core.headers import FORWARD_DESTINATION, Headers
from duesweep.core.message import (
    EXCEPTION_MESSAGE,
    EXCEPTION_TYPE,
    FAILED_QUEUE,
    HELP_LINK,
    INNER_EXCEPTION_TYPE,
    SOURCE,
    STACK_TRACE,
    UNREADABLE_HEADERS,
    make_error_message,
    wire_time,
)
from duesweep_testing.builders import DelayedRow, delayed_row, message
from support import recordings

NOW = datetime(2026, 11, 21, 9, 21, 21, 394302, tzinfo=UTC)
RECORDED: dict[str, str | None] = json.loads(recordings.error_row().headers)


def _failure(cause: Exception | None = None) -> MessageError:
    """An error as it was caught."""
    try:
        raise QueueNotFoundError('There is no queue table "public"."Nowhere"') from cause
    except QueueNotFoundError as error:
        return error


def _headers(row: DelayedRow, error: MessageError) -> Headers:
    one = make_error_message(message(row), error, own_queue='"public"."Sales.Orders"', now=NOW)
    assert (one.key, one.body) == (row.key, row.body)
    assert not isinstance(one.headers, MessageError)
    assert json.loads(one.headers_text) == one.headers
    assert list(json.loads(one.headers_text)) == list(one.headers)
    return one.headers


def _recorded_delayed_row() -> DelayedRow:
    (row,) = [r for r in recordings.delayed_rows() if message(r).destination == "Nowhere"]
    return row


def test_recorded_message_gets_the_recorded_headers_in_their_order() -> None:
    headers = _headers(_recorded_delayed_row(), _failure(KeyError("Nowhere")))

    assert list(headers) == list(RECORDED)
    ours = {EXCEPTION_TYPE, INNER_EXCEPTION_TYPE, EXCEPTION_MESSAGE, SOURCE, STACK_TRACE}
    assert {n: v for n, v in headers.items() if n not in ours} == {
        n: v for n, v in RECORDED.items() if n not in ours
    }
    assert headers[EXCEPTION_TYPE] == "duesweep.errors.QueueNotFoundError"
    assert headers[INNER_EXCEPTION_TYPE] == "builtins.KeyError"
    assert headers[EXCEPTION_MESSAGE] == 'There is no queue table "public"."Nowhere"'
    assert headers[SOURCE] == "duesweep"
    assert headers[HELP_LINK] is None
    stack = headers[STACK_TRACE]
    assert stack is not None
    assert stack.startswith("KeyError: 'Nowhere'")
    assert stack.endswith('QueueNotFoundError: There is no queue table "public"."Nowhere"')
    assert "in _failure" in stack


def test_without_a_cause_there_is_no_inner_exception() -> None:
    headers = _headers(_recorded_delayed_row(), _failure())

    assert list(headers) == [name for name in RECORDED if name != INNER_EXCEPTION_TYPE]


def test_fault_headers_of_an_earlier_failure_are_replaced() -> None:
    earlier = {FAILED_QUEUE: "Shipping", EXCEPTION_TYPE: "System.Exception"}

    headers = _headers(delayed_row("Nowhere", more=earlier), _failure())

    assert headers[FAILED_QUEUE] == "Nowhere"
    assert headers[EXCEPTION_TYPE] == "duesweep.errors.QueueNotFoundError"
    assert FORWARD_DESTINATION not in headers


def test_unreadable_headers_travel_as_they_were_in_a_header_of_ours() -> None:
    row = DelayedRow(headers='{"NServiceBus.MessageId":"\t')
    claimed = message(row)
    assert isinstance(claimed.headers, UnreadableHeadersError)

    headers = _headers(row, claimed.headers)

    assert next(iter(headers)) == UNREADABLE_HEADERS
    assert headers[UNREADABLE_HEADERS] == row.headers
    assert headers[EXCEPTION_TYPE] == "duesweep.errors.UnreadableHeadersError"
    assert headers[INNER_EXCEPTION_TYPE] == "json.decoder.JSONDecodeError"
    assert headers[FAILED_QUEUE] == '"public"."Sales.Orders"'


def test_text_that_no_column_can_hold_is_replaced() -> None:
    error = QueueNotFoundError("There is no queue \0 or \ud800")

    headers = _headers(delayed_row("x"), error)

    assert headers[EXCEPTION_MESSAGE] == "There is no queue \N{REPLACEMENT CHARACTER} or ?"
    stack = headers[STACK_TRACE]
    assert stack is not None
    assert "\0" not in stack
    assert "\ud800" not in stack


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (NOW, "2026-11-21 09:21:21:394302 Z"),
        (datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "2026-01-02 03:04:05:000006 Z"),
        (
            datetime(2026, 11, 21, 1, 0, tzinfo=timezone(timedelta(hours=5, minutes=30))),
            "2026-11-20 19:30:00:000000 Z",
        ),
    ],
)
def test_wire_time_is_utc_with_microseconds_after_a_colon(moment: datetime, text: str) -> None:
    assert wire_time(moment) == text
