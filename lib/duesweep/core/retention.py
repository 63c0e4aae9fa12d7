"""Where the ledger can be cut, so that no sweep is cut in two. Without I/O."""

from collections.abc import Iterable
from datetime import datetime, timedelta

# A row's instant and those of its sweep may be rounded differently.
_MARGIN = timedelta(seconds=1)


def cut_before(wanted: datetime, spans: Iterable[tuple[datetime, datetime]]) -> datetime:
    """The last instant up to `wanted` that no sweep spans; `spans` are their starts and ends."""
    cut = wanted
    for start, end in sorted(spans, key=lambda span: span[1], reverse=True):
        if end + _MARGIN < cut:
            # Those that follow end earlier still.
            break
        cut = min(cut, start - _MARGIN)
    return cut
