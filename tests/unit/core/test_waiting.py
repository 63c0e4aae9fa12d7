"""Which messages a filter means."""

from collections.abc import Mapping
from typing import Any

import pytest

from duesweep.core.patterns import fits_pattern
from duesweep.core.waiting import MessageFilter, WaitingMessage
from duesweep_testing.builders import DelayedRow, delayed_row, message

OWN = "Sales.Orders"
SAGA = "c0ffee00-0000-0000-0000-000000000000"


def _waiting(destination: str | None = "Billing.EU", **more: str | None) -> WaitingMessage:
    headers = {name.replace("_", "."): value for name, value in more.items()}
    row = delayed_row(destination, more=headers)
    return WaitingMessage(message(row), row.key, None, 0)


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
def test_asterisk_alone_is_a_pattern(pattern: str, text: str, fits: bool) -> None:  # noqa: FBT001 - a case
    assert fits_pattern(text, pattern) is fits


@pytest.mark.parametrize(
    "conditions",
    [
        {"destination": "Billing*"},
        {"message_type": "Sales.Messages.*"},
        {"saga_id": SAGA},
        {"headers": (("Colour", "bl*"), ("NServiceBus.Version", "10.*"))},
        {"headers": (("Empty", "*"),)},
    ],
)
def test_all_conditions_hold(conditions: Mapping[str, Any]) -> None:
    waiting = _waiting(NServiceBus_SagaId=SAGA, Colour="blue", Empty="", Null=None)

    assert MessageFilter(**conditions).matches(waiting, OWN)


@pytest.mark.parametrize(
    "conditions",
    [
        {"destination": "Shipping*"},
        {"message_type": "Other"},
        {"saga_id": "another"},
        {"message_ids": ("another",)},
        {"is_failing": True},
        {"headers": (("Colour", "bl*"), ("NServiceBus.Version", "9.*"))},
        {"headers": (("Absent", "*"),)},
        {"headers": (("Null", "*"),)},
    ],
)
def test_one_condition_does_not_hold(conditions: Mapping[str, Any]) -> None:
    waiting = _waiting(NServiceBus_SagaId=SAGA, Colour="blue", Null=None)

    assert not MessageFilter(**conditions).matches(waiting, OWN)


@pytest.mark.parametrize(
    "address", ["Billing", "Billing@[dbo]@[nsb]", "Billing@machine", '"public"."Billing"']
)
def test_filter_fits_the_queues_name_in_an_address(address: str) -> None:
    assert MessageFilter(destination="Billing").matches(_waiting(address), OWN)
    assert MessageFilter(destination="Bill*").matches(_waiting(address), OWN)
    assert not MessageFilter(destination="public").matches(_waiting(address), OWN)


def test_unreadable_destination_is_in_all_destinations_and_is_not_the_own_queue() -> None:
    row = DelayedRow(headers="no JSON")
    poison = WaitingMessage(message(row), row.key, None, 0)

    assert MessageFilter(destination="*").matches(poison, OWN)
    assert not MessageFilter(destination=OWN).matches(poison, OWN)


def test_message_for_the_endpoint_itself_goes_to_its_own_queue() -> None:
    assert MessageFilter(destination="Sales.*").matches(_waiting(None), OWN)
    assert not MessageFilter(destination="Billing").matches(_waiting(None), OWN)


def test_headers_that_cannot_be_read_fit_no_condition_on_them() -> None:
    row = DelayedRow(headers="no JSON")
    poison = WaitingMessage(message(row), row.key, None, 0)

    assert MessageFilter().matches(poison, OWN)
    assert MessageFilter(keys=(row.key,)).matches(poison, OWN)
    assert not MessageFilter(message_type="*").matches(poison, OWN)
    assert not MessageFilter(headers=(("a", "*"),)).matches(poison, OWN)


@pytest.mark.parametrize(
    ("conditions", "reads"),
    [({}, False), ({"keys": ("1",)}, False), ({"destination": "B"}, True), ({"saga_id": ""}, True)],
)
def test_store_answers_for_keys_and_dues_alone(
    conditions: Mapping[str, Any], *, reads: bool
) -> None:
    assert MessageFilter(**conditions).reads_headers is reads
