"""The outcome of a sweep from its journal: `done` only if its account is closed."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from duesweep.core.account import SweepSummary
from duesweep.core.errors import ExitCode
from duesweep.core.result import exit_code_of
from duesweep.stores.summary import Lateness, summary_of

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
        else [
            SimpleNamespace(
                **{"slice": 0, "reason": None, "breakers": None, "careful_batches": None}
                | counts
                | end
            )
        ]
    )
    return summary_of(SimpleNamespace(**row | closed), [SimpleNamespace(**total)], ends, Lateness())


ENDED = "Spark ended the job: x"
STOPPED, LATER = {"stop_at": BEGAN}, {"stop_at": BEGAN + timedelta(minutes=1)}
WHOLE = {"given": 10, "claimed": 10}
PART = {"given": 10, "claimed": 4}
CUT = {"given": 10, "reason": "the server went away"}
# The end of its slice, how it was closed, and its kind; `left` and `skipped` where they matter.
INCOMPLETE: dict[str, tuple[dict[str, Any] | None, dict[str, Any], dict[str, int]]] = {
    "it does not add up": (PART | {"skipped": 3}, {}, {"left": 3, "skipped": 3}),
    "Spark ended it": (WHOLE, {"dispatched": 10, "reason": ENDED}, {}),
    "its slice was cut": (None, {"remaining": 6}, {"left": 6, "skipped": 0}),
    "stopped, and cut": (CUT, STOPPED | {"remaining": 6}, {}),
    "stopped, and ended by Spark": (CUT, STOPPED | {"reason": ENDED}, {}),
}
DONE: dict[str, tuple[dict[str, Any] | None, dict[str, Any], dict[str, int]]] = {
    "its account is closed": (
        PART | {"skipped": 3, "gone": 2, "later": 1},
        {},
        {"skipped": 3, "gone": 2, "eligible_later": 1, "left": 0},
    ),
    "cut, and nothing is due": (None, {"remaining": 0}, {"left": 6, "skipped": 0}),
    "it ended before its stop": (WHOLE, LATER | {"dispatched": 10}, {}),
    "it had done all when it was stopped": (WHOLE, STOPPED | {"dispatched": 10}, {}),
}


@pytest.mark.parametrize("case", [*INCOMPLETE, *DONE])
def test_sweep_is_done_only_if_its_account_is_closed_or_nothing_is_due(case: str) -> None:
    end, closed, counts = (INCOMPLETE | DONE)[case]
    is_done = case in DONE

    found = summary(end, **closed)

    code = ExitCode.DONE if is_done else ExitCode.WORK_LEFT
    assert (found.outcome, exit_code_of(found)) == ("done" if is_done else "incomplete", code)
    assert {name: getattr(found, name) for name in counts} == counts


def test_reason_is_sparks_or_what_does_not_add_up() -> None:
    assert summary(WHOLE, dispatched=10, reason=ENDED).reason == ENDED
    assert "3 of 10 messages" in str(summary(PART | {"skipped": 3}).reason)
    assert summary(PART | {"skipped": 6}).reason is None


def test_sweep_that_left_messages_because_it_was_stopped_is_stopped_and_no_fault() -> None:
    found = summary(PART | {"left": 6}, **STOPPED)

    assert (found.outcome, exit_code_of(found), found.reason) == ("stopped", ExitCode.DONE, None)
    assert (found.found, found.claimed, found.left) == (10, 4, 6)


def test_sweep_that_was_stopped_before_its_plan_is_stopped_if_messages_remain() -> None:
    found = summary(None, dispatched=0, planned="[]", remaining=1, **STOPPED)

    assert (found.outcome, exit_code_of(found), found.found) == ("stopped", ExitCode.DONE, 0)


def test_sweep_that_left_messages_without_a_stop_is_never_done() -> None:
    found = summary(PART | {"left": 6}, **LATER)

    assert (found.outcome, exit_code_of(found)) == ("incomplete", ExitCode.WORK_LEFT)


def test_messages_that_failed_before_a_stop_are_in_the_exit_code() -> None:
    found = summary({"given": 10, "claimed": 5, "left": 5}, failed=1, **STOPPED)

    assert (found.outcome, exit_code_of(found)) == ("stopped", ExitCode.MESSAGES_FAILED)
    assert (found.dispatched, found.failed, found.left) == (4, 1, 5)
