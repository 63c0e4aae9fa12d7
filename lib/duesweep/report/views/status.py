"""The facts of endpoints, as blocks: whether all is well, problems, the record."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from duesweep.core.errors import shorten
from duesweep.core.finding import Severity
from duesweep.core.held_back import HeldBack, Holder
from duesweep.core.quantities import count_text, duration_text, short_time, time_text
from duesweep.core.routing import fits_destination
from duesweep.operations.look import DestinationOutlook
from duesweep.operations.pauses import ListedPause
from duesweep.operations.status import History, Status, SweepLine, WaitingCounts
from duesweep.report.text import Block, Cell, Column, Facts, Line, Row, Table, Wrapped
from duesweep.report.views.exhausted import group_table, short_class
from duesweep.report.views.messages import pause_table
from duesweep.report.views.upkeep import finding_row, severity_cell

# A cell of commands, which can be copied.
COMMANDS = "cyan"
_MOST_ROWS = 20
_COMMAND = re.compile(r"`duesweep ([^`]+)`|the command `([^`]+)`")
# The columns of the list of errors that have room next to the texts and the commands.
_ERRORS = ("group", "open", "last (UTC)", "error", "destination")
_COLOURS = {"done": "green", "failures": "yellow"}
_DUE = (
    Column("destination", least=None),
    Column("due", is_number=True),
    Column("how late"),
    Column("next"),
)
_FAILING = (
    Column("messages", is_number=True),
    Column("error"),
    Column("destination", least=None),
    Column("last failure (UTC)", least=None),
    Column("example"),
)
_SWEEPS = (
    Column("began (UTC)", least=None),
    Column("took", is_number=True),
    Column("outcome", least=None),
    *(Column(each, is_number=True) for each in ("due", "dispatched", "failed", "exhausted")),
    *(Column(each, is_number=True) for each in ("left", "95 % up to")),
    Column("reason"),
)
FLEET_COLUMNS = (
    Column("endpoint", least=None),
    Column("state", least=None),
    Column("due now", is_number=True),
    Column("oldest due", is_number=True, rank=2),
    Column("errors", is_number=True, rank=1),
    Column("in back-off", is_number=True, rank=3),
    Column("last sweep (UTC)", least=None, rank=4),
    Column("first concern", rank=5),
)


class Titled(NamedTuple):
    """Blocks with a title, which belong together."""

    title: str
    blocks: Sequence[Block]


def headline(found: Sequence[Status]) -> Cell:
    """Whether all is well."""
    concerns = [each for one in found for each in one.concerns]
    if not concerns:
        return Cell("All is well.", "green")
    faults = sum(each.severity is Severity.FAULT for each in concerns)
    warnings = len(concerns) - faults
    counts = ((faults, "fault"), (warnings, "warning"))
    told = ", ".join(count_text(count, noun) for count, noun in counts if count)
    bad = sum(bool(one.concerns) for one in found)
    where = f" at {bad} of {len(found)} endpoints" if len(found) > 1 else ""
    return Cell(f"Needs attention: {told}{where}.", "red" if faults else "yellow")


def verdict(found: Sequence[Status]) -> Iterator[Block]:
    """Why not all is well; of several endpoints a table, the worst first."""
    if len(found) > 1:
        yield Table(FLEET_COLUMNS, [_fleet_row(one) for one in worst_first(found)])
    elif found[0].concerns:
        rows: list[Row] = [
            # Other concerns may quote messages.
            [
                severity_cell(each.severity),
                _with_options(found[0], each.text) if each.text in found[0].problems else each.text,
            ]
            for each in found[0].concerns
        ]
        yield Wrapped(rows)


def whole(found: Status) -> Iterator[Block]:
    """All of an endpoint's report but its plots."""
    yield Line(headline([found]).text)
    yield from verdict([found])
    yield facts(found, datetime.now(UTC))
    for section in (*to_do(found), *record(found)):
        yield Line(section.title)
        yield from section.blocks


def worst_first(found: Sequence[Status]) -> Sequence[Status]:
    """The endpoints with the most faults first, then by warnings."""
    order = (Severity.FAULT, Severity.WARNING)

    def badness(one: Status) -> Sequence[int]:
        return [-sum(each.severity is severity for each in one.concerns) for severity in order]

    return sorted(found, key=lambda one: (badness(one), one.source))


def facts(found: Status, now: datetime) -> Facts:
    """The reasons of the verdict."""
    waiting, history = found.waiting, found.history
    return Facts(
        {
            "last sweep": "unknown" if history is None else _last_sweep(history, now),
            "oldest due message": "unknown" if waiting is None else _oldest(waiting),
            "objective": _objective(found),
            "ledger": "unknown" if waiting is None else _ledger(waiting),
        }
    )


def to_do(found: Status) -> Iterator[Titled]:
    """Problems, and work that waits for a person."""
    waiting, history = found.waiting, found.history
    if history is not None and history.errors:
        explained = "They are out of attempts and moved to the ledger, with headers and body."
        table = group_table(history.errors).only(*_ERRORS)
        texts = [Cell(shorten(each.example.error_text or "")) for each in history.errors]
        commands = [
            _commands(
                found,
                ("errors", "list", "--group", each.group),
                ("errors", "replay", "--group", each.group, "--reason", "…"),
            )
            for each in history.errors
        ]
        whole = table.beside(Column("text"), texts).beside(Column("what to do"), commands)
        yield Titled("Open errors", [Line(explained), whole])
    if waiting is not None and waiting.destinations:
        yield Titled("Due messages by destination", list(_due(waiting, history)))
    if waiting is not None and waiting.pauses:
        pauses = [ListedPause.of(each) for each in waiting.pauses]
        ends = [_commands(found, ("resume", each.what or "")) for each in pauses]
        table = pause_table(pauses).beside(Column("to end it"), ends)
        yield Titled("Paused destinations", [table])
    if found.findings:
        rows = [
            finding_row(replace(each, advice=each.advice and _with_options(found, each.advice)))
            for each in found.findings
        ]
        yield Titled("The doctor's findings", [Wrapped(rows)])


def record(found: Status) -> Iterator[Titled]:
    """Failures that are tried again, and the last sweeps."""
    history = found.history
    if history is None:
        return
    if history.failing:
        explained = "They failed and are in the store. Sweeps try them again by themselves."
        rows = [
            (
                f"{each.messages:,}",
                short_class(each.error_class),
                each.destination or "own queue",
                short_time(each.last),
                shorten(each.example),
            )
            for each in history.failing[:_MOST_ROWS]
        ]
        more = len(history.failing) - len(rows)
        rest = [Line(f"And {count_text(more, 'more kind')}.")] if more else []
        yield Titled("In back-off", [Line(explained), Table(_FAILING, rows), *rest])
    since = time_text(history.since)
    if not history.sweeps:
        yield Titled("The last sweeps", [Line(f"No sweep since {since}.")])
        return
    told = (
        f"{len(history.sweeps)} of {count_text(history.count, 'sweep')} since {since}. "
        "“95 % up to”: 95 % of the messages were at most this late."
    )
    table = Table(_SWEEPS, [_sweep_row(each) for each in history.sweeps])
    yield Titled("The last sweeps", [table, Line(told)])


def _fleet_row(one: Status) -> Row:
    waiting, history = one.waiting, one.history
    oldest = waiting and waiting.oldest_due
    last = history.sweeps[0].start if history and history.sweeps else None
    return [
        one.source,
        severity_cell(one.concerns[0].severity) if one.concerns else Cell("well", "green"),
        f"{waiting.due:,}" if waiting else "?",
        _ago(oldest, waiting.now) if waiting and oldest else "",
        f"{history.open_errors:,}" if history else "?",
        f"{history.in_back_off:,}" if history else "?",
        short_time(last) if last else "",
        one.concerns[0].text if one.concerns else "",
    ]


def _last_sweep(history: History, now: datetime) -> str:
    if not history.sweeps:
        return f"none since {time_text(history.since)}"
    last = history.sweeps[0]
    done = f"{last.outcome}, dispatched {last.dispatched:,} of {last.found:,}"
    return f"{time_text(last.start)}, {_ago(last.start, now)} ago: {done}"


def _oldest(waiting: WaitingCounts) -> str:
    if waiting.oldest_due is None:
        return "none is due"
    text = f"due for {_ago(waiting.oldest_due, waiting.now)}, since {time_text(waiting.oldest_due)}"
    if waiting.oldest_eligible is None:
        is_all = waiting.looked_at == waiting.due
        none = "no due message" if is_all else f"none of the oldest {waiting.looked_at:,}"
        return f"{text}; {none} is for the next sweep"
    if waiting.oldest_eligible == waiting.oldest_due:
        return text
    return f"{text}; the next sweep's oldest: {_ago(waiting.oldest_eligible, waiting.now)}"


def _objective(found: Status) -> str:
    if found.objective_seconds is None:
        return "none is set (slo.lateness_seconds)"
    limit = f"{found.objective_seconds:g} s"
    if found.history is None:
        return f"{limit}; whether it was met is unknown"
    of = count_text(found.history.lateness_of, "dispatched message")
    if late := found.history.late:
        return f"{limit}, missed by {late:,} of the last {of}"
    return f"{limit}, met by the last {of}"


def _ledger(waiting: WaitingCounts) -> str:
    if waiting.unsettled_since is None:
        return "up to date"
    lacking = count_text(waiting.unsettled, "sweep or command")
    return f"lacks {lacking}; the first began at {time_text(waiting.unsettled_since)}"


def _due(waiting: WaitingCounts, history: History | None) -> Iterator[Block]:
    rows = [
        [
            one.destination or "(cannot be read)",
            f"{sum(one.late.values()):,}",
            ", ".join(f"{name.replace('_', ' ')}: {n:,}" for name, n in one.late.items() if n),
            "\n".join(_reasons(one, waiting.held_back, history)),
        ]
        for one in waiting.destinations[:_MOST_ROWS]
    ]
    yield Table(_DUE, rows)
    if more := len(waiting.destinations) - len(rows):
        yield Line(f"And {count_text(more, 'more destination')}.")
    if waiting.looked_at < waiting.due:
        yield Line(f"The table shows the {waiting.looked_at:,} that have been due for the longest.")


def _reasons(
    one: DestinationOutlook, held: Sequence[HeldBack], history: History | None
) -> Iterator[str]:
    """The due messages for a destination, and the reasons for their delay."""

    def why(holder: Holder) -> str:
        for each in held:
            if each.holder is holder and (
                each.what is None or fits_destination(one.destination, each.what)
            ):
                until = "" if each.until is None else f", until {time_text(each.until)}"
                return f"{f'{shorten(each.what)}, ' if each.what else ''}{each.why}{until}"
        return "nothing holds them back any longer"

    last = history.sweeps[0] if history and history.sweeps else None
    if one.eligible and one.problem is not None:
        yield f"{one.eligible:,} would fail: {one.problem}"
    elif one.eligible:
        # Unavailable destinations are named there: a breaker is open.
        name = (one.destination or "").partition("@")[0]
        named = last and last.left and _names(last.reason or "", name)
        left = f"; the last one left some: {last.reason}" if last and named else ""
        yield f"{one.eligible:,} for the next sweep{left}"
    if one.limited:
        yield f"{one.limited:,} of them limited: {why(Holder.LIMITED)}"
    if one.paused:
        yield f"{one.paused:,} paused: {why(Holder.PAUSED)}"
    if one.back_off:
        again = "" if one.problem is None else f"; now they would fail again: {one.problem}"
        yield f"{one.back_off:,} in back-off: they failed, and sweeps try them again later{again}"


def _names(reason: str, name: str) -> bool:
    """Whether a reason names this destination, and not only another one that begins with it."""
    return bool(name) and re.search(rf"(?<![\w.]){re.escape(name)}(?!\w|\.\w)", reason) is not None


def _sweep_row(sweep: SweepLine) -> Row:
    counts = (sweep.found, sweep.dispatched, sweep.failed, sweep.exhausted, sweep.left)
    return [
        short_time(sweep.start),
        f"{sweep.seconds:.1f} s",
        Cell(sweep.outcome, _COLOURS.get(sweep.outcome, "red")),
        *(f"{count:,}" for count in counts),
        "" if sweep.lateness_p95_ms is None else duration_text(sweep.lateness_p95_ms),
        shorten(sweep.reason or ""),
    ]


def _ago(moment: datetime, now: datetime) -> str:
    return duration_text(max(0.0, (now - moment) / timedelta(milliseconds=1)))


def _commands(found: Status, *commands: Sequence[str]) -> Cell:
    """Commands on this endpoint. Without its options they would act on the endpoint of the folder
    in which they are pasted.
    """
    lines = (shlex.join(["duesweep", *words, *found.options]) for words in commands)
    return Cell("\n".join(lines), COMMANDS)


def _with_options(found: Status, text: str) -> str:
    """The same for commands that a text names, as in "run the command `setup`"."""
    options = "".join(f" {shlex.quote(each)}" for each in found.options)
    return _COMMAND.sub(lambda each: f"`duesweep {each[1] or each[2]}{options}`", text)
