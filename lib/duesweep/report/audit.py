"""What an audit found, for people and as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from duesweep.audit.audit import AuditReport
from duesweep.core.audit import AuditCheck, Suspect
from duesweep.report.quantities import count_text

_MOST_EXAMPLES = 10
_REPORT = "report this with what `duesweep show KEY` and the ledger's history say of an example"
_RESTORE = "find out who changed the ledger's tables (`DESCRIBE HISTORY`), and restore that version"
_SWEEP = "run `duesweep sweep`, which does it; if that does not help, read the error that it tells"
_ADVICE: Mapping[AuditCheck, str] = {
    AuditCheck.TOMBSTONE_TWICE: f"look whether the message arrived twice, and {_REPORT}",
    AuditCheck.TOMBSTONE_MISSING: _RESTORE,
    AuditCheck.TOMBSTONE_UNEXPECTED: _RESTORE,
    AuditCheck.OUTCOME_DIFFERS: _RESTORE,
    AuditCheck.SWEEP_MISSING: _RESTORE,
    AuditCheck.SWEEP_TWICE: _RESTORE,
    AuditCheck.SWEEP_SUMS: f"{_RESTORE}; if nobody did, report this",
    AuditCheck.ERROR_TWICE: _RESTORE,
    AuditCheck.ERROR_MISSING: f"{_RESTORE}: `errors` holds the only copy of these messages",
    AuditCheck.ERROR_UNEXPECTED: _RESTORE,
    AuditCheck.CANCELLED_DIFFERS: f"{_RESTORE}: `changes` holds the only copy of these messages",
    AuditCheck.STORED_AND_GONE: "pause its destination, and look whether the message arrived: a "
    "sweep would send it again (a restored backup of the store is the usual cause)",
    AuditCheck.COUNTER_LEFT: f"somebody else took the message; {_SWEEP}",
    AuditCheck.JOURNAL_OLD: f"the ledger lacks what it did; {_SWEEP}",
    AuditCheck.JOURNAL_ORPHANED: "compare its rows of duesweep_journal and duesweep_changes with "
    "the ledger (column sweep_id), and delete them if the ledger has them",
}


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """What one check found: `count` things, some as examples."""

    check: AuditCheck
    count: int
    examples: Sequence[Suspect]
    advice: str


def findings(report: AuditReport) -> list[AuditFinding]:
    """The findings, in the order of the checks."""
    order = list(AuditCheck)
    ordered = sorted(report.suspects, key=lambda one: (order.index(one.check), one.about))
    return [
        _finding(check, list(suspects))
        for check, suspects in groupby(ordered, key=lambda one: one.check)
    ]


def sentences(report: AuditReport) -> Iterator[str]:
    """What was found, and what to do."""
    found = findings(report)
    for one in found:
        yield f"{one.check}: {one.count:,}"
        for example in one.examples:
            yield f"  {example.about}: {example.found}"
        if one.count > len(one.examples):
            yield f"  … and {one.count - len(one.examples):,} more"
        yield f"  → {one.advice}"
    verdict = "all of it agrees" if not found else f"{count_text(len(found), 'check')} failed"
    yield (
        f"{report.source}: {count_text(report.tombstones, 'tombstone')}, "
        f"{count_text(report.sweeps, 'sweep')} and {count_text(report.stored, 'stored message')}: "
        f"{verdict}."
    )
    if report.unsettled:
        left = count_text(report.unsettled, "sweep or command")
        yield f"The journal still has {left} that the ledger may lack; not judged."


def document(report: AuditReport, exit_code: int) -> dict[str, Any]:
    """The same for JSON."""
    return {
        "source": report.source,
        "tombstones": report.tombstones,
        "sweeps": report.sweeps,
        "stored": report.stored,
        "unsettled": report.unsettled,
        "findings": [
            {
                "check": one.check.value,
                "count": one.count,
                "examples": [{"about": each.about, "found": each.found} for each in one.examples],
                "advice": one.advice,
            }
            for one in findings(report)
        ],
        "exit_code": int(exit_code),
        "error": None,
    }


def _finding(check: AuditCheck, suspects: Sequence[Suspect]) -> AuditFinding:
    examples = suspects[:_MOST_EXAMPLES]
    return AuditFinding(check, len(suspects), examples, _ADVICE[check])
