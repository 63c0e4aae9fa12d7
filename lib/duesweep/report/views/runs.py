"""Runs of `sweep`, plans and handovers: as blocks, and their JSON documents."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from duesweep.core.account import BreakerReport, SweepReport, SweepSummary
from duesweep.core.errors import ExitCode, Problem, shorten
from duesweep.core.held_back import HeldBack, Holder
from duesweep.core.quantities import count_text, duration_text, size_text, time_text
from duesweep.operations.look import LATENESS, DestinationOutlook, Outlook
from duesweep.operations.run import Run
from duesweep.report.document import plain
from duesweep.report.text import Block, Column, Facts, Line, Note, Table
from duesweep.sweep.job import SweepContext

if TYPE_CHECKING:
    from duesweep.operations.handover import Aborted, Destined, Handover, Preview

_NOT_IN_TABLE = {
    *("source", "sweep_ids", "failures", "breakers", "careful_batches"),
    *("by_destination", "is_lasting", "is_late"),
    *("lateness_p95_ms", "lateness_max_ms"),
}
# A median of 0 ms has a row with larger figures near it.
_ALWAYS_IN_TABLE = {"found", "dispatched", "lateness_p50_ms"}
_LISTS = ("failures", "breakers", "careful_batches", "sweep_ids")
_SUMS = ("found", "dispatched", "failed", "exhausted", "left", "held")
_NUMBERS = ("eligible", "back-off", "paused", "limited")
PLAN_COLUMNS = (
    Column("destination", least=12),
    *(Column(name, is_number=True) for name in _NUMBERS),
    # The shortest times are the first to go.
    *(
        Column(f"late: {name.replace('_', ' ')}", is_number=True, rank=len(LATENESS) - number)
        for number, name in enumerate(LATENESS)
    ),
)
# Numbers of a summary, with their meaning in short; docs/exit-codes.md has all of them.
_NOT_DELIVERED = {
    "failed": "still in the store",
    "exhausted": "in the ledger's `errors`",
    "skipped": "locked by another process",
    "gone": "removed by another process",
    "eligible_later": "in back-off, or no longer due",
    "held": "their destination is paused",
    "left": "not reached, or destination unavailable",
}
_HINTS = _NOT_DELIVERED | {
    "horizon": "messages due before this time",
    "claimed": "dispatched, failed or exhausted",
    "over_limit": "failed, without attempts left",
}
# Unavailable destinations that a line names.
_MOST_NAMED = 3
# The rest of a sweep's reason, if only destinations and services are its reason.
_NO_REASON = re.compile(r"[; ]*(and [\d,]+ more)?")
PREVIEW_COLUMNS = (
    Column("destination", least=12),
    Column("where to", least=20),
    Column("messages", is_number=True),
)


def document(run: Run) -> dict[str, Any]:
    """A run for JSON: with the column names of the ledger's `sweeps`, why messages failed, and what
    held others back. Times are in ISO 8601, all numbers are raw; the numbers of a run that an error
    ended are null, as its work before the error is unknown here. All runs have the same names.
    """
    told = {
        "source": run.source,
        "outcome": run.outcome,
        "ledger_error": run.ledger_error,
        "held_back": plain(run.held_back),
        "next_due": None if run.next_due is None else plain(run.next_due.instant),
        "next_attempt": None if run.next_attempt is None else plain(run.next_attempt.instant),
        "exit_code": run.exit_code,
        "error": run.error,
        "without_spark": None if run.without_spark is None else str(run.without_spark),
    }
    if run.report is not None:
        return {**plain(run.report), **told}
    nothing = {
        field.name: 0 if field.type is int and not run.is_lost else None
        for field in fields(SweepReport)
        if field.repr
    }
    return nothing | {name: [] for name in _LISTS} | told


def failure() -> dict[str, Any]:
    """The document of a run that an error ended before its source was known."""
    return document(Run("", "error")) | {"source": None}


def fleet_document(runs: Sequence[Run], exit_code: int) -> dict[str, Any]:
    """The runs of several endpoints, with the sums of all."""
    total = {"endpoints": len(runs), **_sums(runs)}
    return {
        "total": total,
        "exit_code": int(exit_code),
        "sources": [document(run) for run in runs],
    }


def run_blocks(run: Run, context: SweepContext | None = None) -> Iterator[Block]:
    """A run, and problems after it, with advice; of some, only with the context."""
    if run.report is not None:
        yield from summary(run.report, only_due=context is None or _sees_only_due(context))
    elif run.outcome == "stopped":
        yield Line(_stopped(run))
    elif run.error is None:
        yield Line(idle_sentence(run))
    # The sentence of an idle run reports failed messages, and a summary unavailable destinations.
    named = {Holder.BACK_OFF} if run.outcome == "idle" else set[Holder]()
    named |= {Holder.BREAKER} if run.report is not None else set()
    yield from _held([one for one in run.held_back if one.holder not in named])
    if run.without_spark is not None:
        yield _without_spark(run.without_spark)
    if context is not None and run.is_late:
        yield Note(_late(run, context), with_json=True)
    kept = None if context is None else _kept(run, context)
    if kept is not None:
        yield Note(kept, with_json=True)
    if run.is_lost and run.error is not None:
        yield Note(run.error)
    if run.ledger_error is not None:
        yield Note(run.ledger_error, with_json=True)


def fleet_blocks(ran: Sequence[tuple[SweepContext, Run]], unread: Sequence[Run]) -> Iterator[Block]:
    """The runs of several endpoints, a line for each, and the sums of all; `unread` are those whose
    settings are wrong.
    """
    for context, run in ran:
        if run.without_spark is not None:
            said = run.without_spark.sentences
            yield Note(f"{run.source}: swept without Spark: {said}", with_json=True)
        kept = _kept(run, context)
        if kept is not None:
            yield Note(f"{run.source}: {kept}", with_json=True)
    told = [(_sentence(run, only_due=_sees_only_due(context)), run) for context, run in ran]
    told += [(_sentence(run), run) for run in unread]
    for sentence, run in sorted(told, key=lambda each: each[0]):
        is_error = run.report is None and run.error is not None
        yield Note(sentence) if is_error else Line(sentence)
    yield Line(_sum_sentence([run for _, run in told]))


def _without_spark(why: Problem) -> Block:
    return Note(f"Swept in this process, without Spark: {why.sentences}", with_json=True)


def _late(run: Run, context: SweepContext) -> str:
    objective = f"{context.objective_seconds:g} s after its Due, the objective slo.lateness_seconds"
    if any(one.holder is Holder.LOCKED for one in run.held_back):
        return f"a message is later than {objective}, or was; others are locked: see above"
    return (
        f"a message was dispatched later than {objective}; sweep more often, or see whether the "
        "sweeps before this one ended well"
    )


def _sees_only_due(context: SweepContext) -> bool:
    """Whether all that a sweep finds is due."""
    return not context.look_ahead.longest_seconds


def _sum_sentence(runs: Sequence[Run]) -> str:
    sums = _sums(runs)
    bad = sum(run.exit_code != ExitCode.DONE for run in runs)
    return (
        f"All {count_text(len(runs), 'endpoint')}: dispatched {sums['dispatched']:,} of "
        f"{sums['found']:,} due messages, {sums['failed']:,} failed, {sums['exhausted']:,} "
        f"exhausted, {sums['left']:,} not reached; {bad} with problems."
    )


def _sums(runs: Sequence[Run]) -> dict[str, int]:
    reports = [run.report for run in runs if run.report is not None]
    return {name: sum(getattr(report, name) for report in reports) for name in _SUMS}


def _sentence(run: Run, *, only_due: bool = True) -> str:
    """The result of a run of one of several endpoints, in a line."""
    report = run.report
    if report is None:
        if run.error is not None:
            return f"{run.source}: {run.error}"
        if run.outcome == "stopped":
            return _stopped(run)
        return idle_sentence(run)
    sentence = summary_sentence(report, only_due=only_due)
    reasons = [f" {each.count:,} failed: {each.reason}." for each in report.failures]
    late = " Later than slo.lateness_seconds." if run.is_late else ""
    error = f" {report.ledger_error}." if report.ledger_error else ""
    return f"{run.source}: {sentence}{''.join(reasons)}{late}{error}"


def _stopped(run: Run) -> str:
    return f"{run.source}: the sweep was stopped before it began; the next sweep continues."


def idle_sentence(run: Run) -> str:
    """Why nothing was delivered: how many messages failed before, and when the next one is tried or
    comes due; without a time if none is stored, or if the store cannot tell.
    """
    sentences = [f"{run.source}: no message can be delivered now."]
    failed = sum(one.messages or 0 for one in run.held_back if one.holder is Holder.BACK_OFF)
    if failed and run.next_attempt is not None:
        at = time_text(run.next_attempt.instant)
        sentences.append(
            f"{count_text(failed, 'message')} failed before; the next attempt is at {at}."
        )
    if run.next_due is not None:
        wait_ms = (run.next_due.instant - run.next_due.now) / timedelta(milliseconds=1)
        wait, at = duration_text(max(0.0, wait_ms)), time_text(run.next_due.instant)
        sentences.append(f"The next message is due in {wait}, at {at}.")
    return " ".join(sentences)


def _kept(run: Run, context: SweepContext) -> str | None:
    """That messages out of attempts are still in the store; None: none are."""
    if run.report is None or not run.report.over_limit:
        return None
    return (
        f"{count_text(run.report.over_limit, 'message')} out of attempts, but kept in the store: "
        f"a sweep exhausts {context.retry.max_exhausted_per_sweep:,} at most. If a setting is "
        "wrong, correct it now. If not, the next sweeps exhaust the rest; to do it faster, raise "
        "retry.max_exhausted_per_sweep"
    )


def _held(held: Sequence[HeldBack]) -> Iterator[Block]:
    if held:
        yield Line("Held back:")
    for one in held:
        yield Line(f"  {held_sentence(one)}")


def held_sentence(held: HeldBack) -> str:
    """The messages held back, by reason, as in `paused: Billing*, 3 messages: the bank is down`."""
    parts = [
        None if held.what is None else shorten(held.what),
        None if held.messages is None else count_text(held.messages, "message"),
        None if held.until is None else f"until {time_text(held.until)}",
    ]
    return ": ".join(filter(None, [held.holder, ", ".join(filter(None, parts)), held.why]))


def summary(of: SweepSummary, *, only_due: bool = True) -> Iterator[Block]:
    """A sweep: a sentence, a table, and the reasons of failures. On a terminal the table has no
    rows that are 0, except for the messages found and dispatched.

    `only_due`: the sweep did not look ahead, so all that it found was due.
    """
    yield Line(summary_sentence(of, only_due=only_due))
    yield Line(f"Sweep of {of.source}")
    yield Facts(dict(_rows(of, has_zeros=not sys.stdout.isatty())))
    if of.failures:
        yield Line("Why messages failed, most frequent reasons first:")
    for failed in of.failures:
        messages = count_text(failed.count, "message")
        destination = failed.destination
        example = "" if destination is None else f", for example to {shorten(destination)}"
        yield Line(f"  {messages}{example}: {failed.reason}")
    if of.failed:
        yield Line("`duesweep list --failing` shows each of them, and when it is tried again.")
    if of.breakers:
        yield Line("Unavailable for some time:")
    for breaker in _alike(of.breakers):
        yield Line(f"  {breaker_sentence(breaker)}")
    # Why messages failed, or were left, is already there.
    reasons = [*(each.reason for each in of.failures), *(each.reason for each in of.breakers)]
    others = [
        careful
        for careful in of.careful_batches
        if not any(careful.reason in reason for reason in reasons)
    ]
    if others:
        yield Line("Not moved within the server, but in the careful form, which takes longer:")
    for careful in others:
        noun = "batch" if careful.batches == 1 else "batches"
        yield Line(f"  {careful.batches:,} {noun}: {careful.reason}")


def _alike(breakers: Sequence[BreakerReport]) -> Iterator[BreakerReport]:
    """The reports, with those as one whose reasons differ in the destination's name only."""
    groups: dict[tuple[str, str], list[BreakerReport]] = {}
    for each in breakers:
        groups.setdefault((each.state, each.reason.replace(each.name, "")), []).append(each)
    for first, *others in groups.values():
        alike = [first, *others]
        names = ", ".join(shorten(each.name) for each in alike[:_MOST_NAMED])
        more = len(alike) - _MOST_NAMED
        yield replace(
            first,
            name=f"{names} and {more} more" if more > 0 else names,
            since=min(each.since for each in alike),
            seconds=max(each.seconds for each in alike),
            left=sum(each.left for each in alike),
            reason=f"for example, {first.reason}" if others else first.reason,
        )


def breaker_sentence(breaker: BreakerReport) -> str:
    """A circuit breaker in a sweep, or several alike, in a line."""
    seconds = duration_text(breaker.seconds * 1_000)
    since = time_text(datetime.fromisoformat(breaker.since))
    left = f", {count_text(breaker.left, 'message')} left" if breaker.left else ""
    head = f"{breaker.name}: {breaker.state}{left}"
    return f"{head}; unavailable from {since}, for {seconds}: {breaker.reason}"


def summary_sentence(summary: SweepSummary, *, only_due: bool) -> str:
    """The result of the sweep, in a sentence."""
    noun = "due message" if only_due else "message"
    took = duration_text((summary.end - summary.start) / timedelta(milliseconds=1))
    if not summary.found and summary.outcome == "stopped":
        return f"The sweep was stopped before it looked for {noun}s; the next sweep continues."
    if not summary.found:
        done = f"Found no {noun}s in {took}"
    else:
        found = count_text(summary.found, noun)
        done = f"Dispatched {summary.dispatched:,} of {found} in {took}"
    counts = {name: getattr(summary, name) for name in _NOT_DELIVERED}
    rest = [
        f"{count:,} {name.replace('_', ' ')} ({_NOT_DELIVERED[name]})"
        for name, count in counts.items()
        if count
    ]
    ending = "" if summary.outcome in {"done", "failures"} else f" The sweep is {summary.outcome}."
    return "; ".join([done, ", ".join(rest)] if rest else [done]) + "." + ending


def _rows(summary: SweepSummary, *, has_zeros: bool) -> Iterator[tuple[str, str]]:
    """The rows of the table: the summary's own names, without values that have a unit."""
    for name, value in asdict(summary).items():
        if value is None or name in _NOT_IN_TABLE:
            continue
        if value == 0 and not has_zeros and name not in _ALWAYS_IN_TABLE:
            continue
        match name:
            case "bytes":
                yield "bodies", size_text(value)
            case "rows_per_second":
                yield "rate", f"{value:,.0f} rows/s"
            case "lateness_p50_ms":
                yield "lateness", _lateness(summary)
            case "reason" if _is_told_below(summary):
                yield "reason", "unavailable destinations or services: see below"
            case _:
                hint = _HINTS.get(name) if value else None
                text = _text_of(value)
                yield name.replace("_", " "), f"{text} ({hint})" if hint else text


def _is_told_below(summary: SweepSummary) -> bool:
    """Whether unavailable destinations and services are the sweep's reason."""
    rest = summary.reason or ""
    for each in summary.breakers:
        rest = rest.replace(each.reason, "")
    return bool(summary.breakers) and _NO_REASON.fullmatch(rest) is not None


def _lateness(summary: SweepSummary) -> str:
    figures = {
        "p50": summary.lateness_p50_ms,
        "p95": summary.lateness_p95_ms,
        "max": summary.lateness_max_ms,
    }
    known = {name: ms for name, ms in figures.items() if ms is not None}
    return ", ".join(f"{duration_text(ms)} ({name})" for name, ms in known.items())


def _text_of(value: object) -> str:
    if isinstance(value, datetime):
        return time_text(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def plan_destinations(destinations: Sequence[DestinationOutlook]) -> Iterator[Block]:
    """The first part of a plan, before all messages are counted."""
    if not destinations:
        return
    rows = [
        [
            one.destination or "(cannot be read)",
            *(f"{count:,}" for count in (one.eligible, one.back_off, one.paused, one.limited)),
            *(f"{count:,}" for count in one.late.values()),
        ]
        for one in destinations
    ]
    yield Table(PLAN_COLUMNS, rows)
    yield Line()


def plan_blocks(outlook: Outlook) -> Iterator[Block]:
    """A preview of a sweep, and the messages held back."""
    due = count_text(outlook.due, "message")
    tried = f"{outlook.eligible:,}" if outlook.eligible else "none"
    yield Line(f"{outlook.source}: {due} due; the next sweep tries {tried}.")
    if outlook.is_cut:
        yield Line(
            f"The table and the messages held back are of the {outlook.looked_at:,} that have been "
            "due for the longest."
        )
    slices = str(outlook.slices) if outlook.slices else "one for each core"
    took = (
        "unknown until a sweep of about as many messages has run on this engine"
        if outlook.seconds is None
        else f"about {duration_text(outlook.seconds * 1_000)}"
    )
    yield Line(
        f"Engine: {outlook.engine}; slices (parallel parts): {slices}; estimated time: {took}."
    )
    failing = [one for one in outlook.destinations if one.problem is not None]
    if failing:
        yield Line("Would fail:")
    for one in failing:
        messages = count_text(sum(one.late.values()), "message")
        yield Line(f"  {shorten(one.destination or '')}, {messages}: {one.problem}")
    yield from _held(outlook.held_back)
    if outlook.sql is not None:
        yield Line()
        # It is ours, and has several lines.
        yield from (Line(line) for line in outlook.sql.split("\n"))


def notices(found: Sequence[Problem]) -> Iterator[Block]:
    """Notices before a command begins."""
    for notice in found:
        yield Note(notice.sentences, with_json=True)


def handover_document(done: "Handover") -> Mapping[str, Any]:
    """A handover for JSON."""
    return document(done.run) | {"left_in_store": done.left}


def handover_blocks(done: "Handover") -> Iterator[Block]:
    """The result of a handover, and the rest."""
    yield from summary(done.report, only_due=False)
    if done.without_spark is not None:
        yield _without_spark(done.without_spark)
    if done.left:
        yield Note(
            f"{count_text(done.left, 'message')} left in the store; `handover --dry-run` lists "
            "which cannot be moved, with the reason. Failed messages in back-off are in the "
            "ledger's `retries`, and messages for paused destinations wait for `resume` (see "
            "`paused`); run `handover` again to try all others",
            with_json=True,
        )
    if done.report.ledger_error:
        yield Note(done.report.ledger_error, with_json=True)


def preview_blocks(found: "Preview") -> Iterator[Block]:
    """How many messages a handover would send to each destination."""
    rows = [
        [shorten(one.destination), shorten(_where(one)), f"{one.messages:,}"]
        for one in found.destinations
    ]
    total = sum(one.messages for one in found.destinations)
    yield Table(PREVIEW_COLUMNS, [*rows, ["", "all", f"{total:,}"]])


def _where(one: "Destined") -> str:
    if one.problem:
        return f"stays: {one.problem}"
    return "at once" if one.level is None else f"delay level {one.level:02}"


def aborted_blocks(aborted: "Aborted") -> Iterator[Block]:
    """How many handovers were stopped."""
    yield Line(
        f"{aborted.source}: stopped {aborted.stopped}. Deferred messages stay in RabbitMQ, all "
        "others stay in the store. Run `handover` again to continue."
        if aborted.stopped
        else f"{aborted.source}: no handover is running."
    )
