"""What remains in the store when a sweep closes."""

from typing import Any

import pytest

from duesweep.stores.due import SqlDriver
from duesweep.sweep.sweep import InProcessEngine
from support.endpoint import Endpoint
from support.sweeps import run_sweep


@pytest.mark.parametrize(("is_cut", "expected"), [(False, "done"), (True, "incomplete")])
def test_it_is_looked_for_only_if_a_slice_is_not_complete(
    expected: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, *, is_cut: bool
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(3)
    asked: list[int | None] = []
    count = SqlDriver.count_pending

    def counting(session: SqlDriver, *rest: Any, **options: Any) -> int:
        asked.append(options.get("most"))
        return count(session, *rest, **options)

    monkeypatch.setattr(SqlDriver, "count_pending", counting)
    if is_cut:
        monkeypatch.setattr(InProcessEngine, "dispatch", lambda *_: None)

    summary = run_sweep(endpoint)

    assert (summary.outcome, asked) == (expected, [1] if is_cut else [])
    assert summary.left == (3 if is_cut else 0)
