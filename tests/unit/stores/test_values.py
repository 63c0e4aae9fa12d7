"""Values of the store contract."""

import pytest

from duesweep.stores.base import Claim
from duesweep_testing.builders import DelayedRow, delayed_row, message


def test_claim_has_to_say_when_a_message_is_due() -> None:
    unset = message(delayed_row())._replace(instant_us=None)

    with pytest.raises(ValueError, match="instant_us"):
        Claim((message(), unset), 0)


def test_message_whose_due_is_infinite_has_no_instant() -> None:
    eternal = message(DelayedRow(due="-infinity"))

    assert Claim((eternal,), 0).messages[0].instant_us is None
