"""The messages of a trial, and the expected outcome of each."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum

from duesweep.core.message import MESSAGE_ID, TIME_TO_BE_RECEIVED
from duesweep_testing.builders import DelayedRow, delayed_row
from support.recordings import delayed_rows

DESTINATION = "NServiceBus.SqlServer.ForwardDestination"
_UNREADABLE = ("{", "[]", '{"a":1}', r'{"a":"\ud800"}')
# A CHECK of queue Shipping refuses bodies that begin so.
REFUSED = b"unwanted"
NOT_DUE_SECONDS = 1_800


class Kind(Enum):
    """The expected outcome of a message."""

    GOOD = "arrives"
    BAD = "fails, and is exhausted"
    NOT_DUE = "stays"


@dataclass(frozen=True, slots=True)
class Expected:
    """A message, and the queue in which it has to arrive: by the address in the trial's place, None
    for the endpoint's own.
    """

    row: DelayedRow
    kind: Kind
    queue: str | None = None

    @property
    def identity(self) -> str:
        """What tells it from all others, wherever it is."""
        return identity(self.row.headers, self.row.body)

    @property
    def headers(self) -> Mapping[str, str | None]:
        """The headers with which it has to arrive."""
        headers: dict[str, str | None] = json.loads(self.row.headers)
        headers.pop(DESTINATION, None)
        return headers


def identity(headers: str, body: bytes | None) -> str:
    """A message's id; the body of one whose headers cannot be read."""
    try:
        found = json.loads(headers)[MESSAGE_ID]
    except (ValueError, KeyError, TypeError):
        return f"body {body!r}"
    return str(found)


def write(
    rng: random.Random,
    destinations: Sequence[str | None],
    *,
    now: datetime,
    has_bad: bool,
    refuses: bool,
) -> list[Expected]:
    """Some hundreds of messages for `destinations`, in the order in which they are stored.

    With `has_bad` some cannot be delivered; with `refuses` the queue Shipping refuses some.
    """
    written = [_good(rng, destinations, number) for number in range(rng.randint(200, 320))]
    written += [_not_due(number) for number in range(12)]
    if has_bad:
        written += [_bad(rng, number) for number in range(rng.randint(4, 14))]
        written += [_refused(number) for number in range(3 * refuses)]
        # Only here: one of them has a destination that is nowhere.
        written += list(_recorded(destinations))
    rng.shuffle(written)
    # Hundreds share a Due, and the others have their own.
    shared = rng.randint(60, 3_600)
    dues = [shared if rng.random() < 0.5 else rng.randint(60, 7_200) for _ in written]
    return [
        replace(one, row=replace(one.row, due=now + _until(one, seconds)))
        for one, seconds in zip(written, dues, strict=True)
    ]


def _until(one: Expected, seconds: int) -> timedelta:
    return timedelta(seconds=NOT_DUE_SECONDS if one.kind is Kind.NOT_DUE else -seconds)


def _good(rng: random.Random, destinations: Sequence[str | None], number: int) -> Expected:
    destination = rng.choice(destinations)
    size = 40_000 if rng.random() < 0.01 else rng.randint(0, 400)
    body = json.dumps({"number": number, "filler": "x" * size}).encode()
    return Expected(delayed_row(destination, body=body), Kind.GOOD, destination)


def _not_due(number: int) -> Expected:
    return Expected(delayed_row("Billing", body=b"not due %d" % number), Kind.NOT_DUE)


def _bad(rng: random.Random, number: int) -> Expected:
    body = b"bad %d" % number
    if rng.random() < 0.5:
        return Expected(delayed_row("Nowhere", body=body), Kind.BAD)
    row = DelayedRow(headers=rng.choice(_UNREADABLE), body=body)
    return Expected(row, Kind.BAD)


def _refused(number: int) -> Expected:
    return Expected(delayed_row("Shipping", body=REFUSED + b" %d" % number), Kind.BAD)


def _recorded(destinations: Sequence[str | None]) -> Sequence[Expected]:
    """What NServiceBus stored, to the destinations that there are, and to one that is nowhere. One
    that expires could be gone before it is counted.
    """
    known = {*destinations, "Nowhere"}
    found = []
    for row in delayed_rows():
        headers = json.loads(row.headers)
        destination = headers.get(DESTINATION)
        if destination in known and TIME_TO_BE_RECEIVED not in headers:
            kind = Kind.BAD if destination == "Nowhere" else Kind.GOOD
            found.append(Expected(row, kind, destination if kind is Kind.GOOD else None))
    return found
