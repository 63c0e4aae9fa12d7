"""`duesweep list`: what waits, how soon it comes due, and which messages are first."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from duesweep import config as configuration
from duesweep.choose import open_look
from duesweep.cli.counting import counting
from duesweep.cli.filters import FilterOptions
from duesweep.cli.unknown import print_unknown, unknown_document
from duesweep.config.adapters.endpoint import sweep_context
from duesweep.core.change import WaitingMessage
from duesweep.core.errors import ExitCode
from duesweep.core.times import BUCKETS
from duesweep.listing import Listing, Question, list_waiting
from duesweep.report.quantities import count_text
from duesweep.report.tables import print_table
from duesweep.report.waiting import (
    BUCKET_COLUMNS,
    COLUMNS,
    FAILING_COLUMNS,
    bucket_rows,
    failing_row,
    message_document,
    message_row,
)


@dataclass(frozen=True, slots=True)
class ListOptions:
    """`limit`: how many messages are shown; with `only_count` none."""

    chosen: FilterOptions
    limit: int
    scan_limit: int
    only_count: bool = False
    as_json: bool = False


def run(file: Path | None, overrides: Sequence[str], options: ListOptions) -> int:
    """List what waits. The first messages are printed before all are counted."""
    config = configuration.load(file, overrides)
    store, own_queue = sweep_context(config).store, config.store.endpoint
    with open_look(store) as session:
        now = session.horizon().server_time
        question = Question(
            wanted=options.chosen.at(now),
            now=now,
            own_queue=own_queue,
            most=0 if options.only_count else options.limit,
            scan_limit=options.scan_limit,
        )

        def show(messages: Sequence[WaitingMessage]) -> None:
            if messages:
                columns, row = (
                    (FAILING_COLUMNS, failing_row)
                    if question.wanted.is_failing
                    else (COLUMNS, message_row)
                )
                print_table(columns, [row(one, now, own_queue) for one in messages])
                print(flush=True)

        with counting("looked at") as tell:
            listing = list_waiting(session, question, None if options.as_json else show, tell)
    if options.as_json:
        _print_document(store.source, listing, question)
    else:
        _print_counts(listing, options)
    return ExitCode.DONE


def _print_counts(listing: Listing, options: ListOptions) -> None:
    print_table(BUCKET_COLUMNS, bucket_rows(listing.counts))
    print_unknown(listing.unknown, "message that was looked at")
    if listing.looked_at is not None:
        print(_looked_at(listing, options.scan_limit), file=sys.stderr)
    left = listing.total - len(listing.messages)
    if left and not options.only_count:
        print(f"duesweep: {left:,} more, which --limit shows", file=sys.stderr)


def _looked_at(listing: Listing, scan_limit: int) -> str:
    looked_at = f"duesweep: looked at {count_text(listing.looked_at or 0, 'message')}"
    if not listing.is_cut:
        return looked_at
    return (
        f"{looked_at}, and stopped there: there are more, so the counts may be too low; raise "
        f"--scan-limit above {scan_limit:,}, or choose fewer with --due-before"
    )


def _print_document(source: str, listing: Listing, question: Question) -> None:
    document = {
        "source": source,
        "now": question.now.isoformat(),
        "total": listing.total,
        "counts": dict(zip(BUCKETS, listing.counts, strict=True)),
        "looked_at": listing.looked_at,
        "is_cut": listing.is_cut,
        "unknown_destination": unknown_document(listing.unknown),
        "messages": [message_document(one, question.own_queue) for one in listing.messages],
    }
    print(json.dumps(document))
