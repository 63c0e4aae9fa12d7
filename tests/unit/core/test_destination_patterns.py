"""Which destinations the patterns of pauses, limits and `allow_destinations` fit."""

import json
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.core.address import TableName, quote_name
from duesweep.core.headers.json import FORWARD_DESTINATION
from duesweep.core.patterns import fits_destination
from duesweep.stores.relational.pauses import (
    FORWARDED_TO,
    destination_like,
    forwarded_like,
    headers_like,
)

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
    assert destination_like("Bil_ling", None) == ["Bil\\_ling", "Bil\\_ling@%"]
    assert forwarded_like("Billing", None) == ['Billing"%', "Billing@%"]
    assert headers_like("Billing", None) == [f'{_HEADER}Billing"%', f"{_HEADER}Billing@%"]
    assert headers_like("*", None) == forwarded_like("*", None) == ["%"]


@pytest.mark.parametrize("pattern", ["Billing*", "Billing@machine"])
def test_plan_leaves_out_by_other_patterns_only_what_they_fit(pattern: str) -> None:
    assert len(destination_like(pattern, "public")) == 1
    assert len(forwarded_like(pattern, "public")) == 1


_NAMES = st.text(alphabet='aB*@"\\[]%_/.é', min_size=1, max_size=5)
_ADDRESSES = st.one_of(
    _NAMES,
    st.builds("{}@[dbo]@[nsb]".format, _NAMES),
    st.builds("{}@machine".format, _NAMES),
    st.builds(quote_name, _NAMES),
    st.builds(lambda schema, name: str(TableName(schema, name)), _NAMES, _NAMES),
)


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
    return json.dumps({"First": "B@", **own}, ensure_ascii=False, separators=(",", ":")).replace(
        "/", escape
    )


@given(st.one_of(_NAMES, _ADDRESSES), _ADDRESSES, st.sampled_from(["/", "\\/"]))
def test_plan_leaves_out_only_destinations_that_the_pattern_fits(
    pattern: str, address: str, escape: str
) -> None:
    headers = _headers(address, escape)
    forwarded = headers.partition(FORWARDED_TO)[2]
    is_left_out = [
        _is_like(address, destination_like(pattern, "B")),
        _is_like(forwarded, forwarded_like(pattern, "B")),
        _is_like(headers, headers_like(pattern, None)),
    ]

    assert fits_destination(address, pattern) or not any(is_left_out)


@given(
    st.text(alphabet="aB\\[]%_/.é", min_size=1, max_size=5),
    st.sampled_from(["{}", "{}@[dbo]@[nsb]", "{}@machine", '"{}"', '"app"."{}"']),
    st.sampled_from(["/", "\\/"]),
)
def test_plan_leaves_out_each_spelling_of_a_paused_name(name: str, form: str, escape: str) -> None:
    address = form.format(name)
    headers = _headers(address, escape)

    assert fits_destination(address, name)
    assert _is_like(address, destination_like(name, "app"))
    assert _is_like(headers.partition(FORWARDED_TO)[2], forwarded_like(name, "app"))
    assert '"' in form or _is_like(headers, headers_like(name, None))
