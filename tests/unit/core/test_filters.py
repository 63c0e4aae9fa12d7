"""Which destinations patterns fit, and which messages and errors filters mean."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.core.address import PostgreSqlAddresses, SqlServerAddresses, TableName, quote_name
from duesweep.core.change import ChangeKind, MessageFilter, WaitingMessage
from duesweep.core.exhausted import ErrorFilter, ErrorRow
from duesweep.core.headers import FORWARD_DESTINATION
from duesweep.core.routing import fits_destination, fits_pattern
from duesweep.operations.exhausted import grouped
from duesweep.stores.forward import (
    FORWARDED_TO,
    destination_like,
    forwarded_like,
    headers_like,
)
from duesweep_testing.builders import DelayedRow, delayed_row, message

_SHOP = "Billing@[dbo]@[shop]"


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("Billing", "Billing", True),
        ("Billing", "Billing.EU", False),
        ("Billing*", "Billing.EU", True),
        ("*EU", "Billing.EU", True),
        ("B*.E*", "Billing.EU", True),
        ("billing*", "Billing", False),
        ("Bill?ng", "Billing", False),
        ("[dbo].[Bill*", "[dbo].[Billing]", True),
        ("*", "", True),
        ("*", "two\nlines", True),
    ],
)
def test_asterisk_alone_is_a_pattern(pattern: str, text: str, *, fits: bool) -> None:
    assert fits_pattern(text, pattern) is fits


@pytest.mark.parametrize(
    ("address", "pattern", "fits"),
    [
        ("Billing", "Billing", True),
        ("Billing", "*", True),
        (_SHOP, "Billing", True),
        (_SHOP, "Bill*", True),
        (_SHOP, "*ing", True),
        (_SHOP, "Billing@[dbo]@*", True),
        ("Billing@machine", "Billing", True),
        ('"public"."Billing"', "Billing", True),
        ('"Billing"', "Billing", True),
        ('"a""b"."Say ""hi"""', 'Say "hi"', True),
        ("a.b", "a.*", True),
        ("Billing2", "Billing", False),
        ("billing", "Billing", False),
        ("Billing2@[dbo]@[shop]", "Billing", False),
        (_SHOP, "dbo", False),
        (_SHOP, "Billing@[app]@*", False),
        (_SHOP, "Billing@", False),
        ('"Billing"."Shipping"', "Billing", False),
        ('"public"."Billing2"', "Billing", False),
    ],
)
def test_pattern_fits_the_address_or_the_queues_name(
    address: str, pattern: str, *, fits: bool
) -> None:
    assert fits_destination(address, pattern) is fits


_POSTGRESQL = PostgreSqlAddresses("Sales", "app")
_SQL_SERVER = SqlServerAddresses("Sales", "dbo", "nsb")
_HEADER = '%"NServiceBus.SqlServer.ForwardDestination":"'


def test_plan_leaves_out_a_name_with_and_without_its_schema() -> None:
    assert destination_like("Bil_ling", _SQL_SERVER) == ["Bil\\_ling", "Bil\\_ling@%"]
    assert forwarded_like("Billing", _SQL_SERVER) == ['Billing"%', "Billing@%"]
    assert headers_like("Billing", _SQL_SERVER) == [f'{_HEADER}Billing"%', f"{_HEADER}Billing@%"]
    assert headers_like("*", _SQL_SERVER) == forwarded_like("*", _SQL_SERVER) == ["%"]
    for other in ("Billing*", "Billing@machine"):
        assert len(destination_like(other, _POSTGRESQL)) == 1
        assert len(forwarded_like(other, _POSTGRESQL)) == 1


_NAMES = st.text(alphabet='aB*@"\\[]%_/.é', min_size=1, max_size=5)
_ADDRESSES = st.one_of(
    _NAMES,
    st.builds("{}@[dbo]@[nsb]".format, _NAMES),
    st.builds("{}@machine".format, _NAMES),
    st.builds(quote_name, _NAMES),
    st.builds(lambda schema, name: str(TableName(schema, name)), _NAMES, _NAMES),
)
_ESCAPES = st.sampled_from(["/", "\\/"])


def _is_like(text: str, likes: Sequence[str]) -> bool:
    """As LIKE with a backslash for its escape."""
    signs = {"%": ".*", "_": "."}
    found = (re.findall(r"\\.|.", like, re.DOTALL) for like in likes)
    return any(
        re.fullmatch("".join(signs.get(s, re.escape(s[-1])) for s in each), text, re.DOTALL)
        for each in found
    )


def _headers(address: str, escape: str) -> str:
    """Headers in which others follow the destination, with slashes as they are or escaped."""
    own = {FORWARD_DESTINATION: address, "Other": '"a"."B"'}
    text = json.dumps({"First": "B@", **own}, ensure_ascii=False, separators=(",", ":"))
    return text.replace("/", escape)


@given(st.one_of(_NAMES, _ADDRESSES), _ADDRESSES, _ESCAPES)
def test_plan_leaves_out_only_destinations_that_the_pattern_fits(
    pattern: str, address: str, escape: str
) -> None:
    headers = _headers(address, escape)
    forwarded = headers.partition(FORWARDED_TO)[2]
    is_left_out = [
        _is_like(address, destination_like(pattern, PostgreSqlAddresses("Sales", "B"))),
        _is_like(forwarded, forwarded_like(pattern, PostgreSqlAddresses("Sales", "B"))),
        _is_like(headers, headers_like(pattern, _SQL_SERVER)),
    ]

    assert fits_destination(address, pattern) or not any(is_left_out)


@given(
    st.text(alphabet="aB\\[]%_/.é", min_size=1, max_size=5),
    st.sampled_from(["{}", "{}@[dbo]@[nsb]", "{}@machine", '"{}"', '"app"."{}"']),
    _ESCAPES,
)
def test_plan_leaves_out_each_spelling_of_a_paused_name(name: str, form: str, escape: str) -> None:
    address = form.format(name)
    headers = _headers(address, escape)

    assert fits_destination(address, name)
    assert _is_like(address, destination_like(name, _POSTGRESQL))
    assert _is_like(headers.partition(FORWARDED_TO)[2], forwarded_like(name, _POSTGRESQL))
    assert '"' in form or _is_like(headers, headers_like(name, _SQL_SERVER))


OWN = "Sales.Orders"
SAGA = "c0ffee00-0000-0000-0000-000000000000"


def _waiting(destination: str | None = "Billing.EU", **more: str | None) -> WaitingMessage:
    headers = {name.replace("_", "."): value for name, value in more.items()}
    row = delayed_row(destination, more=headers)
    return WaitingMessage(message(row), row.key, None, 0)


def _poison() -> WaitingMessage:
    row = DelayedRow(headers="no JSON")
    return WaitingMessage(message(row), row.key, None, 0)


def _means(waiting: WaitingMessage, **conditions: Any) -> bool:
    return MessageFilter(**conditions).matches(waiting, OWN)


@pytest.mark.parametrize(
    ("conditions", "holds"),
    [
        ({"destination": "Billing*"}, True),
        ({"message_type": "Sales.Messages.*"}, True),
        ({"saga_id": SAGA}, True),
        ({"headers": (("Colour", "bl*"), ("NServiceBus.Version", "10.*"))}, True),
        ({"headers": (("Empty", "*"),)}, True),
        ({"destination": "Shipping*"}, False),
        ({"message_type": "Other"}, False),
        ({"saga_id": "another"}, False),
        ({"message_ids": ("another",)}, False),
        ({"is_failing": True}, False),
        ({"headers": (("Colour", "bl*"), ("NServiceBus.Version", "9.*"))}, False),
        ({"headers": (("Absent", "*"),)}, False),
        ({"headers": (("Null", "*"),)}, False),
    ],
)
def test_message_is_meant_if_all_conditions_hold(
    conditions: Mapping[str, Any], *, holds: bool
) -> None:
    waiting = _waiting(NServiceBus_SagaId=SAGA, Colour="blue", Empty="", Null=None)

    assert _means(waiting, **conditions) is holds


def test_message_whose_headers_cannot_be_read_is_in_all_destinations_and_fits_no_header() -> None:
    poison = _poison()

    assert _means(poison)
    assert _means(poison, keys=(poison.message.key,))
    assert _means(poison, destination="*")
    for other in ({"destination": OWN}, {"message_type": "*"}, {"headers": (("a", "*"),)}):
        assert not _means(poison, **other)


def test_message_for_the_endpoint_itself_goes_to_its_own_queue() -> None:
    assert _means(_waiting(None), destination="Sales.*")
    assert not _means(_waiting(None), destination="Billing")


@pytest.mark.parametrize(
    ("conditions", "reads"),
    [({}, False), ({"keys": ("1",)}, False), ({"destination": "B"}, True), ({"saga_id": ""}, True)],
)
def test_store_answers_for_keys_and_dues_alone(
    conditions: Mapping[str, Any], *, reads: bool
) -> None:
    assert MessageFilter(**conditions).reads_headers is reads


_NINE = datetime(2026, 11, 23, 9, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)
_ROW = ErrorRow(
    sweep_id="sweep",
    message_key="key",
    message_id="message",
    enclosed_types="Sales.Cancel, Sales",
    destination="Billing.Orders",
    attempts=5,
    first_failed_at=_NINE - _MINUTE,
    last_failed_at=_NINE,
    error_class="duesweep.errors.QueueNotFoundError",
    error_text="There is no queue Billing.Orders",
    failed_from=_NINE,
)


@pytest.mark.parametrize(
    ("chosen", "is_meant"),
    [
        (ErrorFilter(), True),
        (ErrorFilter(ids=("x", "key")), True),
        (ErrorFilter(ids=("message",)), True),
        (ErrorFilter(group=_ROW.group), True),
        (ErrorFilter(error_class="QueueNotFoundError"), True),
        (ErrorFilter(error_class="duesweep.*"), True),
        (ErrorFilter(destination="Billing*", message_type="*Cancel"), True),
        (ErrorFilter(since=_NINE, until=_NINE + _MINUTE), True),
        (ErrorFilter(ids=("x",)), False),
        (ErrorFilter(ids=("key",), group="0"), False),
        (ErrorFilter(error_class="NotFoundError"), False),
        (ErrorFilter(destination="Billing"), False),
        (ErrorFilter(destination="Billing*", message_type="Sales"), False),
        (ErrorFilter(until=_NINE), False),
        (ErrorFilter(since=_NINE + _MINUTE), False),
    ],
)
def test_error_is_meant_if_it_fits_all_conditions(chosen: ErrorFilter, *, is_meant: bool) -> None:
    assert chosen.matches(_ROW) is is_meant


def test_error_without_type_and_destination_fits_no_pattern() -> None:
    unreadable = _ROW._replace(enclosed_types=None, destination=None)

    assert ErrorFilter().matches(unreadable)
    assert not ErrorFilter(destination="*").matches(unreadable)
    assert not ErrorFilter(message_type="*").matches(unreadable)


def test_group_is_the_same_wherever_it_is_computed() -> None:
    # Written down: people keep these ids in their notes for a shift.
    assert _ROW.group == "efa5c5d6"
    assert _ROW._replace(message_id="other", last_failed_at=_NINE + _MINUTE).group == _ROW.group
    for other in ({"destination": "Shipping"}, {"enclosed_types": None}, {"error_class": "x"}):
        assert _ROW._replace(**other).group != _ROW.group


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_group_counts_what_became_of_errors_and_shows_the_last_one_that_is_open(
    order: slice,
) -> None:
    done = [ChangeKind.REPLAYED, ChangeKind.DISCARDED, ChangeKind.DISCARDED]
    rows = [
        _ROW._replace(
            message_id=f"m{number}",
            last_failed_at=_NINE + number * _MINUTE,
            failed_from=_NINE + number * _MINUTE,
            change=change,
        )
        for number, change in enumerate([None, None, *done])
    ]

    (group,) = grouped(rows[order])

    counts = (group.count, group.open, group.replayed, group.discarded)
    assert counts == (5, 2, 1, 2)
    assert (group.first_failed_at, group.last_failed_at) == (_NINE, _NINE + 4 * _MINUTE)
    assert group.example.message_id == "m1"


def test_group_with_the_most_open_errors_comes_first() -> None:
    replayed = _ROW._replace(destination="a", change=ChangeKind.REPLAYED, messages=2)

    groups = grouped([replayed, _ROW._replace(destination="b")])

    assert [group.destination for group in groups] == ["b", "a"]
