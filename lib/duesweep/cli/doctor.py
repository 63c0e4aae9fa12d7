"""`duesweep doctor`: checks services and settings, and says what to do."""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field

from rich.console import Console
from rich.table import Table
from rich.text import Text

from duesweep import config as configuration
from duesweep.config import Config
from duesweep.config.adapters import Needs
from duesweep.core.errors import ExitCode, make_printable
from duesweep.core.finding import (
    Check,
    Finding,
    Severity,
    fault,
    is_to_mend,
    skipped,
    without,
    worst_first,
)
from duesweep.doctor.examine import Examination, LedgerBinding, examine_services
from duesweep.doctor.spark import ledger_finding, not_started, spark_findings
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
    without([], options.ignored)
    config = configuration.load(of, overrides)
    findings = worst_first(without(_examine(config, options), options.ignored))
    if options.as_json:
        print(as_json(config.store.endpoint, findings))
    elif options.print_sql:
        print_statements(findings)
    else:
        print_findings(findings, is_verbose=options.is_verbose)
    return ExitCode.MESSAGES_FAILED if any(map(is_to_mend, findings)) else ExitCode.DONE


def as_json(endpoint: str, findings: Sequence[Finding]) -> str:
    """One JSON document: the endpoint, the worst severity, and all findings."""
    worst = findings[0].severity if findings else Severity.OK
    is_bad = any(map(is_to_mend, findings))
    document = {
        "endpoint": endpoint,
        "worst": worst if is_bad else Severity.OK,
        "findings": [_told(finding) for finding in findings],
    }
    return json.dumps(document)


def _told(finding: Finding) -> dict[str, object]:
    # Why a sweep does not start is said by the sweep.
    return {name: value for name, value in asdict(finding).items() if name != "refusal"}


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


def print_findings(findings: Sequence[Finding], *, is_verbose: bool = False) -> None:
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


def _examine(config: Config, options: DoctorOptions) -> list[Finding]:
    examination: Examination | None = None
    findings: list[Finding] = []
    binding = LedgerBinding(problem="The journal was not read")
    try:
        examination = _examination(config)
    except ImportError as error:
        findings.append(_import_fault(error))
    if examination is not None:
        services, binding = examine_services(examination)
        findings += services
    if options.with_spark:
        return [*findings, *_examine_spark(examination, binding)]
    reason = "--no-spark: Spark, its executors and the ledger were not checked"
    return [*findings, skipped(Check.SPARK_START, "the Spark session", reason)]


def _examination(config: Config) -> Examination:
    from duesweep.doctor.examine import examination  # noqa: PLC0415 - loads drivers

    return examination(config)


def _import_fault(error: ImportError) -> Finding:
    return fault(
        Check.DRIVER_IMPORT,
        "this machine",
        f"A database driver cannot be loaded: {error}",
        "Install what the error names",
    )


def _examine_spark(examination: Examination | None, binding: LedgerBinding) -> list[Finding]:
    from duesweep.doctor.cluster import ledger_facts, spark_facts  # noqa: PLC0415 - loads Spark
    from duesweep.drivers.spark import SPARK_ERRORS, sentence, spark_session  # noqa: PLC0415

    try:
        spark = spark_session(configuration.jars())
    except (*SPARK_ERRORS, RuntimeError) as error:
        return [not_started(sentence(error))]
    needs = examination.needs if examination else Needs(["duesweep", "pyarrow"])
    findings = [*spark_findings(spark_facts(spark, needs))]
    if examination is not None:
        context = examination.context
        ledger = context.open_ledger(spark)
        facts = ledger_facts(ledger, binding)
        findings.append(ledger_finding(facts))
    return findings
