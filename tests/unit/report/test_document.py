"""Values as JSON."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple
from uuid import UUID

from duesweep.core.change import ChangeKind
from duesweep.core.errors import ExitCode
from duesweep.report.document import plain

_ID = UUID("4b1d6f0e-8f53-4c7b-9f0f-6a0f3f1f2c55")


class _Pair(NamedTuple):
    name: str
    at: datetime


@dataclass(frozen=True)
class _Value:
    kind: ChangeKind
    pairs: tuple[_Pair, ...]
    counts: dict[ChangeKind, int]
    body: bytes
    took: timedelta
    id: UUID
    exit_code: ExitCode
    nothing: None = None
    for_acts: object = field(default=object(), repr=False)


def test_value_has_its_fields_by_their_names_and_not_what_it_does_not_show() -> None:
    hour = timezone(timedelta(hours=1))
    pair = _Pair("a", datetime(2026, 12, 1, 9, tzinfo=hour))
    counts = {ChangeKind.RESTORED: 1}
    value = _Value(
        ChangeKind.CANCELLED, (pair,), counts, b"\xff", timedelta(seconds=1.5), _ID, ExitCode.LATE
    )

    document = plain(value)

    assert document == {
        "kind": "cancelled",
        "pairs": [{"name": "a", "at": "2026-12-01T08:00:00+00:00"}],
        "counts": {"restored": 1},
        "body": "/w==",
        "took": 1.5,
        "id": str(_ID),
        "exit_code": 5,
        "nothing": None,
    }
    assert json.loads(json.dumps(document)) == document


def test_time_in_utc_ends_as_it_did_ever() -> None:
    assert plain(datetime(2026, 12, 1, tzinfo=UTC)) == "2026-12-01T00:00:00+00:00"
