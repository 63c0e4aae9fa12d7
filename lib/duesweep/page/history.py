"""Reads from the ledger what was swept, what fails, and which errors wait for a hand."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice

from duesweep.core.exhausted import ErrorFilter, ErrorGroups
from duesweep.exhausted import ExhaustedMessages
from duesweep.ledger.base import Among, Between, Condition, LedgerRow
from duesweep.ledger.ledger import Ledger
from duesweep.page.facts import Failing, History, SweepLine
from duesweep.page.steps import TimeSteps, lateness_steps

_COLUMNS = (
    *("start", "end", "outcome", "found", "dispatched", "failed", "exhausted", "left"),
    *("lateness_p95_ms", "reason"),
)
_SHOWN_SWEEPS = 20
# To read the lateness of so many messages takes about a second.
_MOST_MESSAGES = 200_000
_FAILING = ("error_class", "destination", "last_failed_at", "error_text")


def read_history(ledger: Ledger, source: str, since: datetime, now: datetime) -> History:
    """What the ledger tells of a source since then. Raises `LedgerError` and `ConfigError`."""
    messages = ExhaustedMessages(ledger, source)
    messages.check()
    of_source = Among("source", [source])
    found = ledger.rows("sweeps", _COLUMNS, of_source, Between("start", since))
    sweeps = sorted(map(_sweep_line, found), key=lambda line: line.start, reverse=True)
    steps = TimeSteps(since, now)
    latest = list(_lateness(ledger, of_source, sweeps))
    return History(
        since=since,
        sweeps=sweeps[:_SHOWN_SWEEPS],
        count=len(sweeps),
        dispatched=sum(line.dispatched for line in sweeps),
        failed=sum(line.failed for line in sweeps),
        exhausted=sum(line.exhausted for line in sweeps),
        rate=steps.rate(sweeps),
        backlog=steps.backlog(sweeps),
        lateness=lateness_steps(latest),
        lateness_of=len(latest),
        failing=_failing(ledger, of_source),
        errors=[group for group in _errors(messages).sorted() if group.open],
    )


def _sweep_line(row: LedgerRow) -> SweepLine:
    return SweepLine(
        start=row["start"],
        seconds=(row["end"] - row["start"]) / timedelta(seconds=1),
        outcome=row["outcome"],
        found=row["found"] or 0,
        dispatched=row["dispatched"] or 0,
        failed=row["failed"] or 0,
        exhausted=row["exhausted"] or 0,
        left=row["left"] or 0,
        lateness_p95_ms=row["lateness_p95_ms"],
        reason=row["reason"],
    )


def _lateness(
    ledger: Ledger, of_source: Condition, sweeps: Sequence[SweepLine]
) -> Iterator[int | None]:
    """The lateness of the messages of the last sweeps, up to `_MOST_MESSAGES`."""
    since, messages = None, 0
    for sweep in sweeps:
        if messages and messages + sweep.dispatched > _MOST_MESSAGES:
            break
        since, messages = sweep.start, messages + sweep.dispatched
    if not messages:
        return
    dispatched = Among("outcome", ["dispatched"])
    conditions = (of_source, dispatched, Between("dispatched_at", since))
    # One sweep may have millions.
    for row in islice(ledger.rows("tombstones", ("lateness_ms",), *conditions), _MOST_MESSAGES):
        yield row["lateness_ms"]


def _failing(ledger: Ledger, of_source: Condition) -> Sequence[Failing]:
    groups: dict[tuple[str, str | None], Failing] = {}
    for row in ledger.rows("retries", _FAILING, of_source):
        key = row["error_class"] or "", row["destination"]
        before = groups.get(key)
        last, text = row["last_failed_at"], row["error_text"] or ""
        if before is None:
            groups[key] = Failing(*key, 1, last, text)
        else:
            is_later = last > before.last
            groups[key] = Failing(
                *key,
                before.messages + 1,
                last if is_later else before.last,
                text if is_later else before.example,
            )
    return sorted(groups.values(), key=lambda each: -each.messages)


def _errors(messages: ExhaustedMessages) -> ErrorGroups:
    fates = messages.fates()
    groups = ErrorGroups()
    for row in messages.rows(ErrorFilter()):
        fate = fates.get(row.id)
        groups.add(row, None if fate is None else fate.kind)
    return groups
