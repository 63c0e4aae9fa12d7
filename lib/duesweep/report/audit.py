"""What an audit found, for people."""

from collections.abc import Iterator

from duesweep.operations.audit import AuditReport
from duesweep.report.quantities import count_text


def sentences(report: AuditReport) -> Iterator[str]:
    """What was found, and what to do."""
    for one in report.findings:
        yield f"{one.check}: {one.count:,}"
        for example in one.examples:
            yield f"  {example.about}: {example.found}"
        if one.count > len(one.examples):
            yield f"  … and {one.count - len(one.examples):,} more"
        yield f"  → {one.advice}"
    failed = len(report.findings)
    verdict = "all of it agrees" if not failed else f"{count_text(failed, 'check')} failed"
    yield (
        f"{report.source}: {count_text(report.tombstones, 'tombstone')}, "
        f"{count_text(report.sweeps, 'sweep')} and {count_text(report.stored, 'stored message')}: "
        f"{verdict}."
    )
    if report.unsettled:
        left = count_text(report.unsettled, "sweep or command")
        yield f"The journal still has {left} that the ledger may lack; not judged."
