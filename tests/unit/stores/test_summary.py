"""The outcome of a sweep from its journal: `done` only if its account is closed."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from duesweep.core.account import SweepSummary
from duesweep.core.errors import ExitCode
from duesweep.stores.summary import Lateness, summary_of
from support.sweeps import exit_code

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def summary(
    end: dict[str, Any] | None, dispatched: int = 4, failed: int = 0, **closed: Any
) -> SweepSummary:
    """Of a sweep of ten messages in one slice; `closed` says how it was closed."""
    row = {
        "sweep_id": "1", "source": "nsb", "horizon": BEGAN, "started_at": BEGAN,
        "closed_at": BEGAN + timedelta(seconds=2), "planned": "[10]", "over_limit": 0,
        "abandoned": False, "remaining": 0, "reason": None, "engine": "spark", "stop_at": None,
    }  # fmt: skip
    total = {"slice": 0, "dispatched": dispatched, "failed": failed, "exhausted": 0, "bytes": 8}
    counts = dict.fromkeys(("given", "claimed", "skipped", "gone", "later", "held", "left"), 0)
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


def test_sweep_that_left_messages_because_it_was_stopped_is_stopped_and_no_fault() -> None:
    found = summary({"given": 10, "claimed": 4, "left": 6}, stop_at=BEGAN)

    assert (found.outcome, exit_code(found), found.reason) == ("stopped", ExitCode.DONE, None)
    assert (found.found, found.claimed, found.left) == (10, 4, 6)


def test_sweep_that_was_stopped_before_its_plan_is_stopped_if_messages_remain() -> None:
    found = summary(None, dispatched=0, planned="[]", stop_at=BEGAN, remaining=1)

    assert (found.outcome, exit_code(found), found.found) == ("stopped", ExitCode.DONE, 0)


def test_sweep_that_ended_before_its_time_was_over_was_not_stopped() -> None:
    later = BEGAN + timedelta(minutes=1)
    found = summary({"given": 10, "claimed": 10}, dispatched=10, stop_at=later)

    assert found.outcome == "done"


def test_sweep_that_left_messages_without_a_stop_is_never_done() -> None:
    later = BEGAN + timedelta(minutes=1)
    found = summary({"given": 10, "claimed": 4, "left": 6}, stop_at=later)

    assert (found.outcome, exit_code(found)) == ("incomplete", ExitCode.WORK_LEFT)


def test_sweep_that_had_done_all_when_it_was_stopped_is_done() -> None:
    found = summary({"given": 10, "claimed": 10}, dispatched=10, stop_at=BEGAN)

    assert found.outcome == "done"


@pytest.mark.parametrize(
    "closed", [{"remaining": 6}, {"reason": "Spark ended the job: x"}], ids=["cut", "ended"]
)
def test_stopped_sweep_whose_slice_was_cut_is_incomplete(closed: dict[str, Any]) -> None:
    found = summary({"given": 10, "reason": "the server went away"}, stop_at=BEGAN, **closed)

    assert (found.outcome, exit_code(found)) == ("incomplete", ExitCode.WORK_LEFT)


def test_messages_that_failed_before_a_stop_are_in_the_exit_code() -> None:
    found = summary({"given": 10, "claimed": 5, "left": 5}, failed=1, stop_at=BEGAN)

    assert (found.outcome, exit_code(found)) == ("stopped", ExitCode.MESSAGES_FAILED)
    assert (found.dispatched, found.failed, found.left) == (4, 1, 5)
