"""What upkeep did, for people and as JSON."""

from collections.abc import Iterator
from typing import Any

from duesweep.ledger.base import TableSize
from duesweep.maintain.report import MaintainReport, TableReport
from duesweep.report.quantities import count_text, size_text, time_text
from duesweep.report.text import Column, Row

COLUMNS = (
    Column("table"),
    *(
        Column(title, is_number=True)
        for title in ("files", "now", "size", "now", "rows removed", "compacted", "deleted files")
    ),
)


def table_row(one: TableReport) -> Row:
    """A table's cells in the order of `COLUMNS`."""
    return [
        one.name,
        *(f"{count:,}" for count in (one.before.files, one.after.files)),
        *(size_text(count) for count in (one.before.bytes, one.after.bytes)),
        *(f"{count:,}" for count in (one.removed, one.compacted)),
        "?" if one.vacuumed is None else f"{one.vacuumed:,}",
    ]


def sentences(report: MaintainReport) -> Iterator[str]:
    """What was done besides the tables."""
    settled = f"settled {report.settled:,} sweeps and commands of dead processes"
    counters = count_text(report.counters, "retry counter")
    yield f"{report.source}: {settled}, removed {counters}."
    if report.kept_from is not None:
        yield f"The ledger has all rows from {time_text(report.kept_from)} on."
    if report.forgotten:
        yield f"Forgot {count_text(report.forgotten, 'row')} of endpoints that are gone."
    for one in report.dropped:
        left = f", {one.unsettled:,} not settled" if one.unsettled else ""
        yield f"The delayed table of {one.source} is gone ({one.delayed}){left}: see --forget."


def document(report: MaintainReport, exit_code: int) -> dict[str, Any]:
    """The same for JSON."""
    return {
        "source": report.source,
        "settled": report.settled,
        "counters_removed": report.counters,
        "kept_from": None if report.kept_from is None else report.kept_from.isoformat(),
        "tables": [_table(one) for one in report.tables],
        "dropped": [one._asdict() for one in report.dropped],
        "rows_forgotten": report.forgotten,
        "exit_code": int(exit_code),
        "error": None,
    }


def _table(one: TableReport) -> dict[str, Any]:
    return {
        "table": one.name,
        "before": _size(one.before),
        "after": _size(one.after),
        "rows_removed": one.removed,
        "files_compacted": one.compacted,
        "files_deleted": one.vacuumed,
    }


def _size(size: TableSize) -> dict[str, int]:
    return {"files": size.files, "bytes": size.bytes}
