"""Builds delayed messages like recorded ones."""

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from duesweep.core.errors import UnreadableHeadersError
from duesweep.core.headers import (
    FORWARD_DESTINATION,
    Headers,
    read_json,
    remove_forward_destination,
    write_json,
)
from duesweep.core.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID, Message
from duesweep.core.world import micros

ENDPOINT = "Sales.Orders"
BODY = b'{"OrderId":1}'
MESSAGE_TYPE = "Sales.Messages.CancelOrder"
# When the recorded messages were due, to the second.
DUE = datetime(2026, 11, 21, 9, 21, 19, tzinfo=UTC)

Due = datetime | Literal["infinity", "-infinity"]


def headers_text(destination: str | None = "Billing", more: Headers | None = None) -> str:
    """Headers of a new message as NServiceBus stores them, with the forward destination at the end.

    `more` come before it, and replace headers with the same name.
    """
    message_id = str(uuid.uuid4())
    headers: dict[str, str | None] = {
        MESSAGE_ID: message_id,
        "NServiceBus.MessageIntent": "Send",
        "NServiceBus.ConversationId": str(uuid.uuid4()),
        "NServiceBus.CorrelationId": message_id,
        "NServiceBus.ReplyToAddress": ENDPOINT,
        "NServiceBus.OriginatingMachine": "HOST-1",
        "NServiceBus.OriginatingEndpoint": ENDPOINT,
        "$.diagnostics.originating.hostid": "5a5c9d1f0f4b4e0ea1b1ad7a7c3f2c11",
        "NServiceBus.ContentType": "application/json",
        ENCLOSED_MESSAGE_TYPES: f"{MESSAGE_TYPE}, Sales.Messages, Version=1.0.0.0, "
        "Culture=neutral, PublicKeyToken=null",
        "NServiceBus.Version": "10.2.8",
        "NServiceBus.TimeSent": "2026-11-21 08:00:00:123456 Z",
    }
    headers |= more or {}
    if destination is not None:
        headers[FORWARD_DESTINATION] = destination
    return write_json(headers)


@dataclass(frozen=True, slots=True)
class DelayedRow:
    """A row of a delayed table."""

    key: str = field(default_factory=lambda: str(uuid.uuid4()))
    headers: str = field(default_factory=headers_text)
    body: bytes | None = BODY
    due: Due = DUE

    @property
    def due_us(self) -> int | None:
        """Due in microseconds since 1970-01-01 UTC; None where it is infinite."""
        return micros(self.due) if isinstance(self.due, datetime) else None

    def is_due(self, before: datetime) -> bool:
        """Whether the row is due by a horizon."""
        return self.due < before if isinstance(self.due, datetime) else self.due == "-infinity"


def delayed_row(
    destination: str | None = "Billing",
    *,
    body: bytes | None = BODY,
    due: Due = DUE,
    more: Headers | None = None,
) -> DelayedRow:
    """A row for `destination`; None: for the endpoint itself."""
    return DelayedRow(headers=headers_text(destination, more), body=body, due=due)


def message(row: DelayedRow | None = None, attempts: int = 0) -> Message:
    """`row` as a claim returns it from a store whose Dues are UTC."""
    row = row or DelayedRow()
    try:
        headers = read_json(row.headers)
    except UnreadableHeadersError as error:
        return Message(
            row.key, row.due_us, error, row.headers, row.body, None, attempts, row.due_us
        )
    return Message(
        row.key,
        row.due_us,
        headers,
        remove_forward_destination(row.headers),
        row.body,
        headers.get(FORWARD_DESTINATION),
        attempts,
        row.due_us,
    )
