"""A custom store's session that was written for an earlier contract."""

import pytest

from duesweep.errors import ConfigError
from duesweep.stores.abilities import refuse_outdated
from duesweep.stores.due import SqlDriver


class _Earlier(SqlDriver):
    claim_keys = None  # type: ignore[assignment]

    def count_pending(self, horizon: object) -> int:  # type: ignore[override]
        raise AssertionError(horizon)


def test_own_session_has_all_that_the_contract_asks_for() -> None:
    refuse_outdated(object.__new__(SqlDriver))


def test_what_an_earlier_one_lacks_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        refuse_outdated(object.__new__(_Earlier))

    assert "it lacks claim_keys(), most of count_pending()" in str(caught.value)
    assert "docs/stores.md" in str(caught.value)
