"""The seeded world of the golden outputs: 300 messages of an endpoint, whose ids, bodies and Dues
are the same each time, counted from the hour in which they are stored.
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from duesweep.core.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID
from duesweep_testing.builders import DelayedRow, headers_text
from support.endpoint import Endpoint

COUNT = 300
SOURCE = "nsb/public.Sales.Orders.Delayed"
MISSING = "Nowhere"
DUE_INDEX = "Sales.Orders.Delayed_Due"
# A body that a CHECK of queue Shipping refuses.
_REFUSED = b"unwanted"
_TYPES = {
    "Billing": "Billing.Messages.ChargeOrder",
    "Shipping": "Shipping.Messages.ShipOrder",
    "Reminders.Mail": "Reminders.Messages.SendReminder",
    MISSING: "Sales.Messages.CancelOrder",
    None: "Sales.OrderSaga+PaymentTimeout",
}
_UNREADABLE = ("{", "[]", '{"a":1}', r'{"a":"\ud800"}')
_TIME_TO_BE_RECEIVED = "NServiceBus.TimeToBeReceived"
XML = b'<?xml version="1.0"?>\n<Order><Id>7</Id><Price currency="EUR">1.10</Price></Order>'
LONG = b"x" * 20_500
_BODIES: tuple[bytes | None, ...] = (None, b"", b"\xff\xfe\x00binary", XML, LONG)


def key(number: int) -> str:
    return f"22222222-0000-4000-8000-{number:012}"


def message_id(number: int) -> str:
    return f"11111111-0000-4000-8000-{number:012}"


class Middle(random.Random):
    """Chance that always falls in the middle: back-offs are as long each time."""

    def random(self) -> float:
        return 0.5


@dataclass(frozen=True, slots=True)
class _Fate:
    """The destination of a message, its body, and when it is due, counted from its storing."""

    destination: str | None
    body: bytes | None
    due: timedelta
    headers: str | None = None
    fails: bool = False
    more: Mapping[str, str | None] | None = None


def write(stored_at: datetime) -> list[DelayedRow]:
    """The messages, in the order in which they are stored.

    A Due is a quarter past an hour, and at least a day from `stored_at`: so the hours from then
    until a command runs are the same, whether it takes a second or ten minutes. No two are equal.
    """
    fates = list(_fates())
    assert len(fates) == COUNT
    Middle().shuffle(fates)
    # No query says in which order a batch is claimed, and the last failure of a batch is a group's
    # example: failing ones are due in the order of their keys, in which they also lie on disk.
    dues = iter(sorted(one.due for one in fates if one.fails))
    fates = [replace(one, due=next(dues)) if one.fails else one for one in fates]
    return [
        DelayedRow(
            key(number),
            one.headers if one.headers is not None else _headers(number, one),
            one.body,
            stored_at + one.due,
        )
        for number, one in enumerate(fates, start=1)
    ]


def number_of(rows: Sequence[DelayedRow], body: bytes) -> int:
    (found,) = (number for number, row in enumerate(rows, start=1) if row.body == body)
    return found


def load(endpoint: Endpoint[Any], written: Sequence[DelayedRow]) -> Mapping[str, Mapping[str, Any]]:
    """Store them; their headers by message id, as far as they can be read."""
    refused = "substring(body FROM 1 FOR 8) = 'unwanted'::bytea"
    endpoint.execute(f'ALTER TABLE "Shipping" ADD CONSTRAINT wanted CHECK (NOT {refused})')
    rows = endpoint.load(written)
    found = (_read(row.headers) for row in rows)
    return {headers[MESSAGE_ID]: headers for headers in found if MESSAGE_ID in headers}


def _read(headers: str) -> Mapping[str, Any]:
    try:
        found = json.loads(headers)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _fates() -> Iterator[_Fate]:
    """Hours from 24: past and future ones are counted apart."""
    past = (-timedelta(hours=24 + number, minutes=15) for number in range(COUNT))
    future = (timedelta(hours=24 + 5 * number, minutes=15) for number in range(COUNT))
    destinations = ("Billing", "Shipping", "Reminders.Mail", None)
    for number in range(COUNT - 60):
        yield _Fate(destinations[number % 4], _order(number), next(past))
    for body in _BODIES:
        yield _Fate("Billing", body, next(past))
    for _ in range(2):
        yield _Fate("Billing", _order(0), next(past), more={_TIME_TO_BE_RECEIVED: "2.00:15:00"})
    for number in range(8):
        yield _Fate(MISSING, b"nowhere %d" % number, next(past), fails=True)
    for number in range(3):
        yield _Fate("Shipping", _REFUSED + b" %d" % number, next(past), fails=True)
    for number, headers in enumerate(_UNREADABLE):
        yield _Fate(None, b"unreadable %d" % number, next(past), headers, fails=True)
    for number in range(38):
        yield _Fate(destinations[number % 4], b"early %d" % number, next(future))


def _order(number: int) -> bytes:
    return json.dumps({"OrderId": number}).encode()


def _headers(number: int, fate: _Fate) -> str:
    saga: Mapping[str, str | None] = {
        "NServiceBus.IsSagaTimeoutMessage": "True",
        "NServiceBus.SagaId": f"44444444-0000-4000-8000-{number % 5:012}",
        "NServiceBus.SagaType": "Sales.OrderSaga, Sales",
    }
    own: Mapping[str, str | None] = {
        MESSAGE_ID: message_id(number),
        "NServiceBus.ConversationId": f"33333333-0000-4000-8000-{number:012}",
        "NServiceBus.CorrelationId": message_id(number),
        ENCLOSED_MESSAGE_TYPES: f"{_TYPES[fate.destination]}, Sales.Messages, Version=1.0.0.0, "
        "Culture=neutral, PublicKeyToken=null",
        # Years ago: not taken for a time of this run.
        "NServiceBus.TimeSent": "2020-11-21 08:00:00:123456 Z",
    }
    more = saga if fate.destination is None else {}
    return headers_text(fate.destination, {**own, **more, **(fate.more or {})})
