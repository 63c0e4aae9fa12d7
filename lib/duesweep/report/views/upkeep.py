"""An endpoint's upkeep, as blocks."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from duesweep.core.errors import make_printable
from duesweep.core.finding import Finding, Severity, is_to_mend
from duesweep.core.quantities import count_text, size_text, time_text
from duesweep.report.text import Block, Cell, Column, Line, Note, Row, Table, Wrapped

if TYPE_CHECKING:
    from duesweep.operations.audit import AuditReport
    from duesweep.operations.doctor import Diagnosis
    from duesweep.operations.maintain import MaintainReport, TableReport
    from duesweep.operations.setup import SetUp

_COLOURS = {Severity.FAULT: "red", Severity.WARNING: "yellow", Severity.OK: "green"}
LEDGER_COLUMNS = (
    Column("table", least=None),
    *(Column(title, is_number=True) for title in ("files", "now", "size", "now", "rows removed")),
    Column("compacted", is_number=True, rank=2),
    Column("deleted files", is_number=True, rank=1),
)


def diagnosis(found: "Diagnosis", *, is_verbose: bool = False) -> Iterator[Block]:
    """The findings, worst first. Passed checks are counted; with `is_verbose` each is a row, and
    equal ones share a row.
    """
    rows = [finding_row(one) for one in found.findings if one.severity != Severity.OK]
    good = [one for one in found.findings if one.severity == Severity.OK]
    shown = good if is_verbose else []
    for check, text in dict.fromkeys((one.check, one.found) for one in shown):
        same = dict.fromkeys(one.about for one in good if (one.check, one.found) == (check, text))
        rows.append([severity_cell(Severity.OK), check, f"{', '.join(same)}: {text}"])
    if rows:
        yield Wrapped(rows)
    counts = {each: sum(one.severity == each for one in found.findings) for each in Severity}
    told = [f"{name}: {count}" for name, count in counts.items() if count and name != Severity.OK]
    yield Line(", ".join([*told, f"{count_text(len(good), 'check')} of the setup passed"]))
    if found.error is not None:
        yield Note(str(found.error), with_json=True)


def mending_statements(found: "Diagnosis") -> Iterator[Block]:
    """The SQL statements that mend findings, each once; and which findings no statement mends."""
    by_setting: dict[str | None, dict[str, None]] = {}
    for one in filter(is_to_mend, found.findings):
        if one.statements:
            by_setting.setdefault(one.setting, {}).update(dict.fromkeys(one.statements))
        else:
            yield Note(f"no statement mends {one.check} of {one.about}: {one.found}. {one.advice}")
    # Each that was examined, also one that lacks nothing.
    servers = {one.setting for one in found.findings} - {None}
    for setting, statements in by_setting.items():
        if len(servers) > 1:
            yield Line(f"-- In the database that {setting} names:")
        for statement in statements:
            yield from map(Line, f"{statement};".split("\n"))


def audited(report: "AuditReport") -> Iterator[Block]:
    """The findings, and what to do."""
    for one in report.findings:
        yield Line(f"{one.check}: {one.count:,}")
        for example in one.examples:
            yield Line(f"  {example.about}: {example.found}")
        if one.count > len(one.examples):
            yield Line(f"  … and {one.count - len(one.examples):,} more")
        yield Line(f"  → {one.advice}")
    failed = len(report.findings)
    verdict = "no differences" if not failed else f"{count_text(failed, 'check')} failed"
    if report.unsettled:
        left = count_text(report.unsettled, "sweep or command")
        rest = f"{verdict} in the settled ones" if failed else "the settled ones agree"
        verdict = f"{left} not judged, since the ledger may lack their rows; {rest}"
    yield Line(
        f"{report.source}: {count_text(report.tombstones, 'tombstone')}, "
        f"{count_text(report.sweeps, 'sweep')} and {count_text(report.stored, 'stored message')}: "
        f"{verdict}."
    )


def maintained(report: "MaintainReport") -> Iterator[Block]:
    """The changes to the ledger's tables, and the other ones."""
    yield Table(LEDGER_COLUMNS, [_ledger_row(one) for one in report.tables])
    settled = f"settled {count_text(report.settled, 'interrupted sweep or command')}"
    counters = count_text(report.counters_removed, "retry counter")
    yield Line(f"{report.source}: {settled}, removed {counters}.")
    if report.kept_from is not None:
        yield Line(f"The ledger has all rows since {time_text(report.kept_from)}.")
    if report.rows_forgotten:
        yield Line(f"Forgot {count_text(report.rows_forgotten, 'row')} of endpoints that are gone.")
    for one in report.dropped:
        left = f", {one.unsettled:,} not settled" if one.unsettled else ""
        yield Line(
            f"The delayed table of {one.source} is gone ({one.delayed}){left}: see --forget."
        )


def set_up(done: "SetUp") -> Iterator[Block]:
    """The created tables, and the problems."""
    for problem in done.problems:
        yield Note(str(problem), with_json=True)
    yield from map(Line, done.done or ["Everything exists already."])


def finding_row(one: Finding) -> Row:
    """The findings with their objects, and what to do."""
    # Only the ends of these lines are ours.
    parts = [one.about, one.found, *([f"→ {one.advice}"] if one.advice else [])]
    return [severity_cell(one.severity), one.check, "\n".join(map(make_printable, parts))]


def severity_cell(severity: Severity) -> Cell:
    """How bad it is."""
    return Cell(severity, _COLOURS.get(severity, ""))


def _ledger_row(one: "TableReport") -> Row:
    return [
        one.table,
        *(f"{count:,}" for count in (one.before.files, one.after.files)),
        *(size_text(count) for count in (one.before.bytes, one.after.bytes)),
        *(f"{count:,}" for count in (one.rows_removed, one.files_compacted)),
        "?" if one.files_deleted is None else f"{one.files_deleted:,}",
    ]
