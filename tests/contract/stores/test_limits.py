"""Reservations of a limit, by the server's clock."""

import pytest

from duesweep.core.policy import RateLimit
from support.endpoint import ON_BOTH_SERVERS, Endpoint

pytestmark = ON_BOTH_SERVERS

_AHEAD = {
    "postgresql": "free_at = free_at + interval '1 hour'",
    "sqlserver": "free_us = free_us + 3600000000",
}


@pytest.mark.parametrize(("per_second", "longest"), [(100, 10), (0.1, 1_064)])
def test_clock_that_was_set_back_holds_a_limit_for_a_moment_only(
    endpoint: Endpoint, per_second: float, longest: float
) -> None:
    limit = RateLimit("Billing", per_second)
    with endpoint.set_up("Billing").context().store.open_task() as session:
        assert session.reserve(limit, 1) == 0
        assert session.reserve(limit, 1) < 11
        ahead = _AHEAD[endpoint.kind]
        endpoint.execute(f"UPDATE {endpoint.own_table('limits')} SET {ahead}")

        assert 0.9 * longest < session.reserve(limit, 1) <= longest
