"""What upkeep did, for people."""

from collections.abc import Iterator

from duesweep.operations.maintain import MaintainReport, TableReport
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
        one.table,
        *(f"{count:,}" for count in (one.before.files, one.after.files)),
        *(size_text(count) for count in (one.before.bytes, one.after.bytes)),
        *(f"{count:,}" for count in (one.rows_removed, one.files_compacted)),
        "?" if one.files_deleted is None else f"{one.files_deleted:,}",
    ]


def sentences(report: MaintainReport) -> Iterator[str]:
    """What was done besides the tables."""
    settled = f"settled {report.settled:,} sweeps and commands of dead processes"
    counters = count_text(report.counters_removed, "retry counter")
    yield f"{report.source}: {settled}, removed {counters}."
    if report.kept_from is not None:
        yield f"The ledger has all rows from {time_text(report.kept_from)} on."
    if report.rows_forgotten:
        yield f"Forgot {count_text(report.rows_forgotten, 'row')} of endpoints that are gone."
    for one in report.dropped:
        left = f", {one.unsettled:,} not settled" if one.unsettled else ""
        yield f"The delayed table of {one.source} is gone ({one.delayed}){left}: see --forget."
