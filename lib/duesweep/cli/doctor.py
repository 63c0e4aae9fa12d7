"""`duesweep doctor`: checks services and settings, and says what to do."""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table
from rich.text import Text

from duesweep import config as configuration
from duesweep.core.errors import make_printable
from duesweep.core.finding import Check, Finding, Severity, is_to_mend
from duesweep.operations.doctor import Diagnosis, examine
from duesweep.report.document import plain
from duesweep.report.quantities import count_text

_COLOURS = {Severity.FAULT: "red", Severity.WARNING: "yellow", Severity.OK: "green"}
# Longer than any line; rich has no width that means "as wide as it is".
_WHOLE_LINES = 1_000_000


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """The options of the command."""

    as_json: bool = False
    print_sql: bool = False
    is_verbose: bool = False
    with_spark: bool = True
    ignored: Sequence[str] = field(default_factory=list)


def run(
    of: configuration.EndpointSettings | None, overrides: Sequence[str], options: DoctorOptions
) -> int:
    """Run all checks and print the findings; 3 if there is a fault or a warning."""
    config = configuration.load(of, overrides)
    found = examine(config, ignored=options.ignored, with_spark=options.with_spark)
    if options.print_sql and not options.as_json:
        print_statements(found.findings)
        return found.exit_code
    return print_diagnosis(found, as_json=options.as_json, is_verbose=options.is_verbose)


def print_diagnosis(found: Diagnosis, *, as_json: bool, is_verbose: bool) -> int:
    """Print what was found; 3 if there is a fault or a warning."""
    if as_json:
        print(json.dumps(plain(found)))
    else:
        _print_findings(found.findings, is_verbose=is_verbose)
    return found.exit_code


def print_statements(findings: Sequence[Finding]) -> None:
    """Print the SQL statements that mend findings, each once; on standard error, the findings that
    no statement mends.
    """
    to_mend = list(filter(is_to_mend, findings))
    by_setting: dict[str | None, dict[str, None]] = {}
    for finding in to_mend:
        if finding.statements:
            by_setting.setdefault(finding.setting, {}).update(dict.fromkeys(finding.statements))
        else:
            text = f"duesweep: no statement mends {finding.check} of {finding.about}: "
            print(make_printable(f"{text}{finding.found}. {finding.advice}"), file=sys.stderr)
    for setting, statements in by_setting.items():
        if len(by_setting) > 1:
            print(f"-- In the database that {setting} names:")
        for statement in statements:
            print(f"{statement};")


def _print_findings(findings: Sequence[Finding], *, is_verbose: bool) -> None:
    """Print a table, worst first. Passed checks are counted; with `is_verbose` each is a row, and
    equal ones share a row.
    """
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for is_wrapped in (False, False, True):
        table.add_column(no_wrap=not is_wrapped, overflow="fold")
    for finding in findings:
        if finding.severity != Severity.OK:
            table.add_row(*_cells(finding.severity, finding.check, _format_finding(finding)))
    good = [finding for finding in findings if finding.severity == Severity.OK]
    shown = good if is_verbose else []
    for check, found in dict.fromkeys((finding.check, finding.found) for finding in shown):
        same = [f.about for f in good if (f.check, f.found) == (check, found)]
        text = make_printable(f"{', '.join(dict.fromkeys(same))}: {found}")
        table.add_row(*_cells(Severity.OK, check, text))
    if table.row_count:
        _print_table(table)
    counts = {severity: sum(f.severity == severity for f in findings) for severity in Severity}
    told = [f"{name}: {n}" for name, n in counts.items() if n and name != Severity.OK]
    print(", ".join([*told, f"{count_text(len(good), 'check')} passed"]))


def _print_table(table: Table) -> None:
    """On a terminal it fits the width; elsewhere lines are whole, so that they can be copied."""
    console = Console(width=None if sys.stdout.isatty() else _WHOLE_LINES)
    with console.capture() as lines:
        console.print(table)
    print("\n".join(line.rstrip() for line in lines.get().splitlines()))


def _format_finding(finding: Finding) -> str:
    about, found = make_printable(finding.about), make_printable(finding.found)
    advice = f"\n→ {make_printable(finding.advice)}" if finding.advice else ""
    return f"{about}\n{found}{advice}"


def _cells(severity: Severity, check: Check, text: str) -> Iterable[Text]:
    # As Text: rich would read brackets in names as mark-up.
    return Text(severity, style=_COLOURS.get(severity, "")), Text(check), Text(text)
