"""The outcome of a sweep from its journal: `done` only if its account is closed."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from duesweep.errors import ExitCode
from duesweep.stores.journal import SweepSummary
from duesweep.stores.relational.summary import Lateness, summary_of
from duesweep.sweep import exit_code

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def summary(end: dict[str, Any] | None, dispatched: int = 4, **closed: Any) -> SweepSummary:
    """Of a sweep of ten messages in one slice; `closed` says how it was closed."""
    row = {
        "sweep_id": "1", "source": "nsb", "horizon": BEGAN, "started_at": BEGAN,
        "closed_at": BEGAN + timedelta(seconds=2), "planned": "[10]", "over_limit": 0,
        "abandoned": False, "remaining": 0, "reason": None, "engine": "spark",
    }  # fmt: skip
    total = {"slice": 0, "dispatched": dispatched, "failed": 0, "exhausted": 0, "bytes": 8}
    counts = dict.fromkeys(("given", "claimed", "skipped", "gone", "later", "left"), 0)
    ends = (
        []
        if end is None
        else [SimpleNamespace(**{"slice": 0, "reason": None, "breakers": None} | counts | end)]
    )
    return summary_of(SimpleNamespace(**row | closed), [SimpleNamespace(**total)], ends, Lateness())


def test_closed_account_is_done() -> None:
    found = summary({"given": 10, "claimed": 4, "skipped": 3, "gone": 2, "later": 1})

    assert (found.outcome, exit_code(found), found.reason) == ("done", ExitCode.DONE, None)
    assert (found.skipped, found.gone, found.eligible_later, found.left) == (3, 2, 1, 0)


def test_account_that_does_not_add_up_is_incomplete_whatever_is_due() -> None:
    found = summary({"given": 10, "claimed": 4, "skipped": 3})

    assert (found.outcome, exit_code(found)) == ("incomplete", ExitCode.WORK_LEFT)
    assert (found.skipped, found.left) == (3, 3)
    assert "3 of 10 messages" in str(found.reason)


def test_job_that_spark_ended_is_never_done() -> None:
    found = summary({"given": 10, "claimed": 10}, dispatched=10, reason="Spark ended the job: x")

    assert (found.outcome, exit_code(found)) == ("incomplete", ExitCode.WORK_LEFT)
    assert found.reason == "Spark ended the job: x"


@pytest.mark.parametrize(("remaining", "outcome"), [(6, "incomplete"), (0, "done")])
def test_slice_that_was_cut_is_incomplete_while_something_is_due(
    remaining: int, outcome: str
) -> None:
    found = summary(None, remaining=remaining)

    assert (found.outcome, found.left, found.skipped) == (outcome, 6, 0)
