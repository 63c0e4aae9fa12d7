"""Which destinations the patterns of pauses, limits and `allow_destinations` fit."""

import pytest

from duesweep.core.patterns import fits_destination
from duesweep.stores.relational.pauses import destination_like, forwarded_like, headers_like

_HEADER = '%"NServiceBus.SqlServer.ForwardDestination":"'


@pytest.mark.parametrize(
    ("address", "pattern"),
    [
        ("Billing", "Billing"),
        ("Billing", "*"),
        ("Billing@[dbo]@[shop]", "Billing"),
        ("Billing@[dbo]@[shop]", "Bill*"),
        ("Billing@[dbo]@[shop]", "*ing"),
        ("Billing@[dbo]@[shop]", "Billing@[[]dbo]@*".replace("[[]", "[")),
        ("Billing@machine", "Billing"),
        ('"public"."Billing"', "Billing"),
        ('"Billing"', "Billing"),
        ('"a""b"."Say ""hi"""', 'Say "hi"'),
        ("a.b", "a.*"),
    ],
)
def test_pattern_fits_the_address_or_the_queues_name(address: str, pattern: str) -> None:
    assert fits_destination(address, pattern)


@pytest.mark.parametrize(
    ("address", "pattern"),
    [
        ("Billing2", "Billing"),
        ("billing", "Billing"),
        ("Billing2@[dbo]@[shop]", "Billing"),
        ("Billing@[dbo]@[shop]", "dbo"),
        ("Billing@[dbo]@[shop]", "Billing@[app]@*"),
        ("Billing@[dbo]@[shop]", "Billing@"),
        ('"Billing"."Shipping"', "Billing"),
        ('"public"."Billing2"', "Billing"),
    ],
)
def test_pattern_fits_no_other_destination(address: str, pattern: str) -> None:
    assert not fits_destination(address, pattern)


def test_plan_leaves_out_a_name_with_and_without_its_schema() -> None:
    assert destination_like("Bil_ling") == ["Bil\\_ling", "Bil\\_ling@%"]
    assert forwarded_like("Billing") == ['Billing"%', "Billing@%"]
    assert headers_like("Billing") == [f'{_HEADER}Billing"%', f"{_HEADER}Billing@%"]
    assert headers_like("*") == forwarded_like("*") == ["%"]


@pytest.mark.parametrize("pattern", ["Billing*", "Billing@machine"])
def test_plan_leaves_out_by_other_patterns_only_what_they_fit(pattern: str) -> None:
    assert len(destination_like(pattern)) == len(forwarded_like(pattern)) == 1
