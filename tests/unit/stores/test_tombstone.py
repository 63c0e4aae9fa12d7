"""The account of a batch's deliveries on its way through the journal and its columns."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from itertools import starmap
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.core.message import Delivered
from duesweep.core.world import micros
from duesweep.stores.task import Claim
from duesweep.stores.tombstone import Tombstones, decode, make_column, schema
from duesweep_testing.builders import BODY, DUE, MESSAGE_TYPE, DelayedRow, delayed_row, message

NOW = DUE + timedelta(seconds=90, microseconds=1_999)
NOW_US = micros(NOW)

moments = st.timedeltas(timedelta(days=-25_000), timedelta(days=50_000)).map(
    lambda since: datetime(1970, 1, 1, tzinfo=UTC) + since
)

_INT32, _INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
# Lone surrogates have no bytes in UTF-8.
_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def _decoded(delivered: list[Delivered]) -> list[dict[str, object]]:
    tombstones = Tombstones.of(delivered, "Sales.Orders")
    batch = decode(tombstones.encode(tombstones.lateness_ms(NOW_US), NOW_US))
    assert batch.schema == schema()
    rows: list[dict[str, object]] = batch.to_pylist()
    return rows


def test_delivered_message_is_accounted_for_in_full() -> None:
    row = delayed_row("Billing")
    claimed = message(row, attempts=2)

    assert _decoded([Delivered(claimed, '"public"."Billing"')]) == [
        {
            "message_key": row.key,
            "message_id": claimed.message_id,
            "message_type": MESSAGE_TYPE,
            "destination": "Billing",
            "queue": '"public"."Billing"',
            "due": DUE,
            "dispatched_at": NOW,
            "lateness_ms": 90_001,
            "attempts": 3,
            "outcome": "dispatched",
            "body_bytes": len(BODY),
        }
    ]


def test_message_without_a_destination_went_to_the_endpoints_own_queue() -> None:
    (row,) = _decoded([Delivered(message(delayed_row(None)), '"public"."Sales.Orders"')])

    assert row["destination"] == "Sales.Orders"


def test_infinite_due_id_and_type_may_be_absent() -> None:
    poor = message(DelayedRow(headers="{}", body=None, due="-infinity"))

    (row,) = _decoded([Delivered(poor, "q")])

    assert [row[n] for n in ("due", "lateness_ms", "message_id", "message_type")] == [None] * 4
    assert row["body_bytes"] == 0


def test_due_is_the_instant_that_the_stored_due_means() -> None:
    # A writer in New York reads UTC's wall clock as its own, five hours ahead.
    stored = message(delayed_row(due=DUE + timedelta(hours=5)))._replace(instant_us=micros(DUE))

    (row,) = _decoded([Delivered(stored, "q")])

    assert row["due"] == DUE
    assert row["lateness_ms"] == 90_001


@given(st.lists(st.tuples(moments, st.binary(max_size=9), st.integers(0, 99)), max_size=9))
def test_every_delivery_comes_back_in_its_place(
    stored: list[tuple[datetime, bytes, int]],
) -> None:
    claimed = [message(delayed_row(due=due, body=body), n) for due, body, n in stored]

    rows = _decoded(list(starmap(Delivered, [(m, f"q{i}") for i, m in enumerate(claimed)])))

    assert [row["message_key"] for row in rows] == [m.key for m in claimed]
    assert [row["queue"] for row in rows] == [f"q{i}" for i in range(len(claimed))]
    assert [row["due"] for row in rows] == [due for due, _, _ in stored]
    assert [row["attempts"] for row in rows] == [n + 1 for _, _, n in stored]


@given(moments, moments, st.timedeltas(timedelta(hours=-14), timedelta(hours=14)))
def test_lateness_is_the_time_since_the_instant_that_due_means(
    due: datetime, now: datetime, shift: timedelta
) -> None:
    late = message()._replace(due_us=micros(due + shift), instant_us=micros(due))

    (late_ms,) = Tombstones.of([Delivered(late, "q")], "q").lateness_ms(micros(now))

    assert late_ms == (now - due) // timedelta(milliseconds=1)


def test_a_thousand_tombstones_are_about_fifty_kilobytes() -> None:
    delivered = [Delivered(message(), '"public"."Billing"') for _ in range(1_000)]
    tombstones = Tombstones.of(delivered, "Sales.Orders")

    assert len(tombstones.encode(tombstones.lateness_ms(NOW_US), NOW_US)) < 60_000


def test_message_that_was_deferred_was_not_late() -> None:
    early, eternal = message(), message(DelayedRow(due="-infinity"))
    sent = [Delivered(one, "q", is_deferred=True) for one in (early, eternal)]

    assert Tombstones.of(sent, "q").lateness_ms(NOW_US) == [0, None]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), _TEXT),
        (pa.int32(), _INT32),
        (pa.int64(), _INT64),
        (pa.timestamp("us", tz="UTC"), _INT64),
        (pa.float64(), st.floats(allow_nan=False)),
        (pa.binary(), st.binary()),
        (pa.map_(pa.string(), pa.string()), st.lists(st.tuples(_TEXT, _TEXT))),
    ],
    ids=str,
)
def test_column_is_that_of_pyarrow(kind: pa.DataType, values: st.SearchStrategy[Any]) -> None:
    @given(st.lists(values | st.none()))
    def check(listed: list[Any]) -> None:
        column = make_column(listed, kind)

        column.validate(full=True)
        assert column.equals(pa.array(listed, kind))

    check()


@pytest.mark.parametrize("value", [2**63, "a\ud800"])
def test_value_that_does_not_fit_is_refused(value: Any) -> None:
    kind = pa.string() if isinstance(value, str) else pa.int64()

    with pytest.raises((OverflowError, UnicodeEncodeError)):
        make_column([value], kind)


_WITHOUT_PANDAS = """
import sys
from duesweep.stores.tombstone import make_column
from duesweep.ledger.rows import SCHEMAS
fields = {field.name: field.type for schema in SCHEMAS.values() for field in schema}
for name in fields.keys() - {"headers", "body"}:
    make_column([None, None], fields[name])
sys.exit("pandas" in sys.modules)
"""


def test_ledgers_columns_but_for_headers_and_bodies_do_without_pandas() -> None:
    assert find_spec("pandas") is not None

    command = [sys.executable, "-c", _WITHOUT_PANDAS]
    assert subprocess.run(command, check=False).returncode == 0


def test_claim_has_to_say_when_a_message_is_due() -> None:
    unset = message(delayed_row())._replace(instant_us=None)

    with pytest.raises(ValueError, match="instant_us"):
        Claim((message(), unset), 0)


def test_message_whose_due_is_infinite_has_no_instant() -> None:
    eternal = message(DelayedRow(due="-infinity"))

    assert Claim((eternal,), 0).messages[0].instant_us is None
