"""Results of operations for programs and notebooks: as documents, as HTML, in Arrow."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any, get_args, get_type_hints

import pyarrow as pa

from duesweep.core.result import Listed, Result
from duesweep.operations import exhausted
from duesweep.operations.audit import AuditReport
from duesweep.operations.change import ChosenMessages
from duesweep.operations.command import Changed, Chosen
from duesweep.operations.doctor import Diagnosis
from duesweep.operations.handover import Aborted, Handover, Preview
from duesweep.operations.look import Outlook
from duesweep.operations.maintain import MaintainReport
from duesweep.operations.messages import Listing, Shown, Waiting
from duesweep.operations.pauses import ListedPause, Pauses, Resumed
from duesweep.operations.replay import ChosenErrors
from duesweep.operations.run import Run
from duesweep.operations.setup import SetUp
from duesweep.operations.status import Status
from duesweep.report.document import plain, whole
from duesweep.report.page import draw
from duesweep.report.text import Block
from duesweep.report.views import exhausted as exhausted_views
from duesweep.report.views import messages, runs, status, upkeep

# The values of other types are as JSON has them.
_TYPES = {
    str: pa.string(),
    int: pa.int64(),
    bool: pa.bool_(),
    datetime: pa.timestamp("us", tz="UTC"),
}


def document(result: Result) -> Mapping[str, Any]:
    """The JSON document of the command that ends with this result."""
    match result:
        case Run():
            return runs.document(result)
        case Handover():
            return runs.handover_document(result)
    return whole(result)


def html(result: Result) -> str:
    """The text of the command, as a piece of HTML."""
    view = next(view for kind, view in _VIEWS.items() if isinstance(result, kind))
    return draw(view(result))


# The first that fits counts.
_VIEWS: Mapping[type, Callable[[Any], Iterable[Block]]] = {
    Run: runs.run_blocks,
    Outlook: lambda one: [
        *runs.plan_destinations(one.destinations),
        *runs.plan_blocks(one),
    ],
    Handover: runs.handover_blocks,
    Preview: runs.preview_blocks,
    Aborted: runs.aborted_blocks,
    Listing: lambda one: [
        *messages.first_messages(one.messages, one.now),
        *messages.counts(one),
    ],
    Shown: messages.shown,
    ChosenErrors: lambda one: [
        *exhausted_views.remarks(one),
        *exhausted_views.chosen(one),
        *messages.would_change(one),
    ],
    ChosenMessages: lambda one: [*messages.chosen_messages(one), *messages.would_change(one)],
    Chosen: lambda one: [*messages.chosen(one), *messages.would_change(one)],
    Changed: messages.changed,
    Resumed: messages.resumed,
    Pauses: messages.pauses,
    exhausted.GroupListing: exhausted_views.groups,
    exhausted.ErrorListing: exhausted_views.errors,
    exhausted.ShownErrors: exhausted_views.shown,
    AuditReport: upkeep.audited,
    MaintainReport: upkeep.maintained,
    SetUp: upkeep.set_up,
    Diagnosis: upkeep.diagnosis,
    Status: status.whole,
}


# The field of a listing that has its rows, and their type.
_ROWS: Mapping[type, tuple[str, type]] = {
    Listing: ("messages", Waiting),
    Pauses: ("pauses", ListedPause),
    exhausted.GroupListing: ("groups", exhausted.ErrorGroup),
    exhausted.ErrorListing: ("errors", exhausted.ListedError),
}


def arrow(listing: Listed) -> pa.Table:
    """The rows of a listing, with the same columns if it is empty."""
    name, kind = next(rows for each, rows in _ROWS.items() if isinstance(listing, each))
    rows, hints = getattr(listing, name), get_type_hints(kind)
    columns = {}
    for each in (each.name for each in fields(kind) if each.repr):
        values = [getattr(row, each) for row in rows]
        columns[each] = pa.array(
            [value if isinstance(value, datetime) else plain(value) for value in values],
            _type_of(hints[each]),
        )
    return pa.table(columns)


def _type_of(hint: Any) -> pa.DataType | None:
    """The type of a column; None: by its values."""
    options = [one for one in (hint, *get_args(hint)) if isinstance(one, type)]
    bases = (base for one in options for base in one.__mro__)
    return next((_TYPES[base] for base in bases if base in _TYPES), None)
