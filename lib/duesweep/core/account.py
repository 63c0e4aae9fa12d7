"""The results of a sweep, as journal and ledger keep them: the account of each slice, its breakers.

In an account, `given = claimed + skipped + gone + later + held + left`. Each number
is counted where it is known, not derived from the others. The rest, if the sum is too small,
is `unexplained`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from itertools import groupby
from typing import Any

from duesweep.core.errors import make_storable

# The name of the breaker of a slice's sessions.
SERVICES = "store and queues"
# A slice may have thousands of destinations; journal and report have the ones with most messages.
MOST_REPORTED = 20
_MOST_REASONS = 3


class BreakerState(StrEnum):
    """`CLOSED`: in use. `OPEN`: not used, and tried again after a pause. `TRIGGERED`: not used
    for the rest of the slice.
    """

    CLOSED = "closed"
    OPEN = "open"
    TRIGGERED = "triggered"


@dataclass(frozen=True, slots=True)
class BreakerReport:
    """A breaker that opened. `name` is a destination's address, or the service's name;
    `state` is that at the end: `closed`, `open` or `triggered`. `since` is when it opened the last
    time, in ISO 8601; `seconds` is for how long it was open. `left` messages of the destination
    were left because of it.
    """

    name: str
    state: str
    since: str
    seconds: float
    left: int
    reason: str

    @property
    def is_closed(self) -> bool:
        return self.state == BreakerState.CLOSED


@dataclass(frozen=True, slots=True)
class CarefulBatches:
    """How many batches the store could not move by itself for this reason; each took longer."""

    reason: str
    batches: int


@dataclass(frozen=True, slots=True)
class Account:
    """The outcomes of the `given` messages of a run of a task, of a slice, or of a sweep. A run is
    given the claim keys that it read.

    `claimed` were delivered, failed or exhausted; `skipped` were locked by others; `gone` were not
    in the store any more; `later` were there, but not due, or in back-off; `held` are for
    paused destinations; `left` were not reached, or their destination was unavailable.
    """

    given: int = 0
    claimed: int = 0
    skipped: int = 0
    gone: int = 0
    later: int = 0
    held: int = 0
    left: int = 0

    def __add__(self, more: "Account") -> "Account":
        return Account(*(getattr(self, f.name) + getattr(more, f.name) for f in fields(Account)))

    @property
    def unexplained(self) -> int:
        known = self.claimed + self.skipped + self.gone + self.later + self.held + self.left
        return self.given - known


@dataclass(frozen=True, slots=True)
class SliceEnd:
    """The end of a slice as one run of its task journalled it, or of one slice or all. `reason` is
    why it is not complete, None: it is. `breakers` are its opened breakers.
    """

    account: Account
    reason: str | None
    breakers: tuple[BreakerReport, ...] = ()
    careful_batches: tuple[CarefulBatches, ...] = ()

    @property
    def left_nothing(self) -> bool:
        """Whether it claimed messages, and left none that it might have claimed."""
        is_complete = self.reason is None and all(one.is_closed for one in self.breakers)
        return is_complete and self.account.claimed > 0 == self.account.left + self.account.skipped

    @property
    def left_blocked(self) -> bool:
        """Whether it left messages, and only ones whose destinations are unavailable."""
        blocked = sum(one.left for one in self.breakers if not one.is_closed)
        is_out = any(one.name == SERVICES for one in self.breakers)
        return not is_out and self.account.skipped == 0 < self.account.left == blocked


CUT = "A slice ended without a report: its task was killed, or lost its connection to the store"


def close_slice(planned: int, claimed: int, ends: Sequence[SliceEnd]) -> SliceEnd:
    """The end of one slice. `planned` comes from the plan, `claimed` from the batches that
    committed, `ends` from the runs of its task, oldest first.

    A task may run more than once. The last complete run has seen all that was still in the slice;
    planned messages that it did not find had left the slice after the plan, and are gone. Without
    a complete run, messages that the last run did not see are left. The last run's breakers and
    careful batches count.

    For example, of 10 planned messages the first run claimed 4, and was killed. The second one was
    given all 10, saw these 4 as gone, claimed 5, and left 1: in all claimed 9, gone 0, left 1.
    """
    last_end = ends[-1] if ends else SliceEnd(Account(), CUT)
    complete = [end.account for end in ends if end.reason is None]
    run = complete[-1] if complete else last_end.account
    given = max(planned, claimed, run.given if complete else 0)
    rest = given - claimed
    seen = {}
    # Not claimed, as the run saw them. Claims of another run, and its own ones whose COMMIT was not
    # answered, it saw as gone, in back-off or locked: these are cut off first.
    for name in ("held", "left", "skipped", "later", "gone"):
        seen[name] = min(getattr(run, name), rest)
        rest -= seen[name]
    if complete:
        seen["gone"] += max(0, rest - max(0, run.unexplained))
    else:
        seen["left"] += rest
    account = Account(given=given, claimed=claimed, **seen)
    return replace(last_end, account=account, reason=None if complete else last_end.reason)


def close_slices(
    planned: Sequence[int], claimed: Mapping[int, int], ends: Mapping[int, Sequence[SliceEnd]]
) -> SliceEnd:
    """The end of a sweep from its slices, whose values are as for `close_slice`.

    A row that moves in the table after the plan may leave one slice for another. It counts once,
    and is not gone.
    """
    closed = [
        close_slice(wanted, claimed.get(number, 0), ends.get(number, ()))
        for number, wanted in enumerate(planned)
    ]
    total = add_ends(closed)
    # Of the messages that are gone, the last complete runs did not find these.
    missing = sum(
        max(0, closed[number].account.gone - complete[-1].gone)
        for number in range(len(planned))
        if (complete := [end.account for end in ends.get(number, ()) if end.reason is None])
    )
    twice = max(0, min(missing, total.account.given - sum(planned)))
    account = replace(
        total.account, given=total.account.given - twice, gone=total.account.gone - twice
    )
    return replace(total, account=account)


def add_ends(ends: Iterable[SliceEnd]) -> SliceEnd:
    """The end of a sweep from the ends of its slices."""
    parts = list(ends)
    return SliceEnd(
        sum((end.account for end in parts), Account()),
        min((end.reason for end in parts if end.reason is not None), default=None),
        merge_reports(report for end in parts for report in end.breakers),
        add_careful(batches for end in parts for batches in end.careful_batches),
    )


def add_careful(found: Iterable[CarefulBatches]) -> tuple[CarefulBatches, ...]:
    """The batches of several slices, by the commonest reasons."""
    counts: Counter[str] = Counter()
    for one in found:
        counts[one.reason] += one.batches
    return tuple(CarefulBatches(*one) for one in counts.most_common(_MOST_REASONS))


def end_as_values(end: SliceEnd) -> dict[str, object]:
    """The end of a slice as the journal keeps it: lists are JSON, empty ones None."""
    breakers = [asdict(report) for report in most_important(end.breakers)]
    careful = {one.reason: one.batches for one in end.careful_batches}
    return {
        "reason": end.reason and make_storable(end.reason),
        "breakers": json.dumps(breakers) if breakers else None,
        "careful_batches": json.dumps(careful) if careful else None,
        **asdict(end.account),
    }


def end_of(row: Any) -> SliceEnd:
    """The end of a slice in a row of the journal."""
    return SliceEnd(
        Account(*(getattr(row, one.name) or 0 for one in fields(Account))),
        row.reason,
        tuple(BreakerReport(**values) for values in json.loads(row.breakers or "[]")),
        tuple(CarefulBatches(*one) for one in json.loads(row.careful_batches or "{}").items()),
    )


def merge_reports(reports: Iterable[BreakerReport]) -> tuple[BreakerReport, ...]:
    """One report of each breaker from the reports of several slices, the most messages first.
    It is closed if it is in all of them.
    """
    ordered = sorted(reports, key=lambda report: (report.name, report.is_closed, report.since))
    merged = [_merge(list(same)) for _, same in groupby(ordered, key=lambda report: report.name)]
    return tuple(sorted(merged, key=_importance))


def _merge(same: Sequence[BreakerReport]) -> BreakerReport:
    first = same[0]
    return BreakerReport(
        first.name,
        first.state,
        min(report.since for report in same),
        max(report.seconds for report in same),
        sum(report.left for report in same),
        first.reason,
    )


def most_important(reports: Iterable[BreakerReport]) -> tuple[BreakerReport, ...]:
    """The reports that journal and ledger's report have."""
    return tuple(sorted(reports, key=_importance)[:MOST_REPORTED])


def _importance(report: BreakerReport) -> tuple[int, int, str]:
    # The open ones first: another round tries them.
    states = ["open", "triggered", "closed"]
    return states.index(report.state), -report.left, report.name


@dataclass(frozen=True, slots=True)
class FailureReason:
    """Why `count` messages of a sweep failed; one of them was for `destination`, None if that
    cannot be read.
    """

    reason: str
    count: int
    destination: str | None


@dataclass(frozen=True, slots=True)
class SweepSummary:
    """The row of one sweep in the ledger's `sweeps`, derived from its journal; the same names in
    `--json`. Times are aware datetimes, `bytes` the sizes of the dispatched bodies. `found` is
    `claimed + skipped + gone + eligible_later + held + left`, `claimed` is
    `dispatched + failed + exhausted`. `skipped` were locked by others, `gone` were taken or removed
    by others, `eligible_later` came to have a later Due or attempt, `held` are for paused
    destinations, `left` were not reached.
    `engine` is what dispatched its slices.
    `over_limit` are the `failed` ones that the limit of exhausted messages kept in the store.
    `failures`, the commonest reasons first, are not in the ledger's row: its `retries` and `errors`
    have the reason of each message. Nor are `breakers`: the destinations and services that were
    unavailable for some time; nor `careful_batches`.
    """

    sweep_id: str
    source: str
    start: datetime
    end: datetime
    horizon: datetime
    found: int
    claimed: int
    dispatched: int
    failed: int
    exhausted: int
    skipped: int
    gone: int
    eligible_later: int
    held: int
    left: int
    over_limit: int
    bytes: int
    lateness_p50_ms: int | None
    lateness_p95_ms: int | None
    lateness_max_ms: int | None
    rows_per_second: float
    outcome: str
    reason: str | None
    engine: str | None = None
    failures: tuple[FailureReason, ...] = ()
    breakers: tuple[BreakerReport, ...] = ()
    careful_batches: tuple[CarefulBatches, ...] = ()


# Numbers of messages by their destination and their outcome.
ByDestination = Counter[tuple[str, str]]


@dataclass(slots=True)
class SweepTally:
    """A sweep's messages, counted while they are read from the journal. `is_late`: one was
    dispatched more than `objective_ms` late at its first attempt; a message that failed before was
    in back-off. None: there is no objective.
    """

    objective_ms: float | None = None
    by_destination: ByDestination = field(default_factory=Counter)
    is_late: bool = False

    def count(self, destinations: Iterable[str | None], outcome: str) -> None:
        """Add messages with one outcome, by their destinations."""
        for destination, messages in Counter(destinations).items():
            self.by_destination[destination or UNREADABLE, outcome] += messages


# Messages whose destination cannot be read.
UNREADABLE = "(cannot be read)"


@dataclass(frozen=True, slots=True)
class SweepReport(SweepSummary):
    """A sweep's summary as its driver tells it; `ledger_error` is why the ledger has not got the
    sweep, or others before it, yet; None: it has. The journal keeps them until the next sweep.
    `sweep_ids` are the ids of all sweeps that a large backlog took, oldest first; `sweep_id` is the
    last. `by_destination` has the numbers of messages that were dispatched, failed or exhausted.
    `is_lasting`: the next sweep would end in the same way, until a person corrects what
    `reason` names. `is_late`: it missed its objective.
    """

    ledger_error: str | None = None
    sweep_ids: tuple[str, ...] = ()
    by_destination: ByDestination = field(default_factory=Counter, repr=False)
    is_lasting: bool = field(default=False, repr=False)
    is_late: bool = field(default=False, repr=False)


# The worst is the last.
_OUTCOMES = ("done", "failures", "stopped", "incomplete", "abandoned")
_COUNTS = [one.name for one in fields(SweepSummary) if one.type is int]
_LATENESS = ("lateness_p50_ms", "lateness_p95_ms", "lateness_max_ms")


def add_reports(earlier: SweepReport, later: SweepReport) -> SweepReport:
    """What two sweeps of one backlog did together. Their percentiles cannot be added: the larger
    ones are at least as large as the percentiles of all messages.
    """
    both = (earlier, later)
    counts: dict[str, Any] = {name: sum(getattr(one, name) for one in both) for name in _COUNTS}
    late: dict[str, Any] = {
        name: max(
            (getattr(one, name) for one in both if getattr(one, name) is not None), default=None
        )
        for name in _LATENESS
    }
    seconds = max((later.end - earlier.start).total_seconds(), 0.001)
    return replace(
        later,
        **counts,
        **late,
        start=earlier.start,
        rows_per_second=round((counts["dispatched"] + counts["exhausted"]) / seconds, 1),
        outcome=max(earlier.outcome, later.outcome, key=_OUTCOMES.index),
        reason=earlier.reason or later.reason,
        failures=_add_failures([*earlier.failures, *later.failures]),
        breakers=most_important(merge_reports([*earlier.breakers, *later.breakers])),
        careful_batches=add_careful([*earlier.careful_batches, *later.careful_batches]),
        sweep_ids=earlier.sweep_ids + later.sweep_ids,
        by_destination=earlier.by_destination + later.by_destination,
        is_late=earlier.is_late or later.is_late,
    )


def add_round(
    earlier: SweepReport, later: SweepReport | None, *, are_held: bool = False
) -> SweepReport:
    """What two rounds did together: `later` has planned again what `earlier` left in the store;
    None: nothing of that was due any more. A round without `sweep_ids` is not in the ledger.
    `are_held`: there are pauses, which a plan heeds, so messages that it lacks may be held.
    """
    lacking = max(0, earlier.skipped + earlier.left - (later.found if later else 0))
    gone = earlier.gone + (0 if are_held else lacking)
    held = earlier.held + (lacking if are_held else 0)
    over = [replace(one, state=BreakerState.CLOSED.value, left=0) for one in earlier.breakers]
    names = {one.name for one in later.breakers} if later else ()
    moved = replace(
        only_outcomes(earlier),
        found=earlier.claimed + earlier.eligible_later + held + gone,
        gone=gone,
        eligible_later=earlier.eligible_later,
        held=held,
        breakers=tuple(one for one in over if one.name not in names),
    )
    if later is None:
        return moved
    if not later.sweep_ids:
        later = replace(later, sweep_id=earlier.sweep_id)
    return add_reports(moved, later)


def give_up(report: SweepReport) -> SweepReport:
    """The report of a run that does not try destinations and services again."""
    triggered = BreakerState.TRIGGERED.value
    given_up = [one if one.is_closed else replace(one, state=triggered) for one in report.breakers]
    return replace(report, breakers=tuple(given_up))


def only_outcomes(report: SweepReport) -> SweepReport:
    """The part of a report about messages that were delivered, failed or exhausted."""
    nothing: dict[str, Any] = dict.fromkeys(
        ("skipped", "gone", "eligible_later", "held", "left"), 0
    )
    outcome = "failures" if report.failed or report.exhausted else "done"
    return replace(
        report, **nothing, found=report.claimed, outcome=outcome, reason=None, breakers=()
    )


def _add_failures(failures: Sequence[FailureReason]) -> tuple[FailureReason, ...]:
    found: dict[str, FailureReason] = {}
    for one in failures:
        before = found.setdefault(one.reason, replace(one, count=0))
        found[one.reason] = replace(before, count=before.count + one.count)
    ordered = sorted(found.values(), key=lambda one: (-one.count, one.reason))
    return tuple(ordered[:_MOST_REASONS])


def add_rest(report: SweepReport, rest: int, *, is_stopped: bool) -> SweepReport:
    """The report of a backlog of which no sweep had the `rest`."""
    if not rest:
        return report
    return replace(
        report,
        found=report.found + rest,
        left=report.left + rest,
        outcome=max(report.outcome, "stopped" if is_stopped else "incomplete", key=_OUTCOMES.index),
        reason=report.reason if is_stopped else report.reason or report.ledger_error,
    )
