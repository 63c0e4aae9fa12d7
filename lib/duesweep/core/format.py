"""The number of the format of journal and ledger, and the mark that tells it.

It is raised by a change with which an older version would lose or double the results of a sweep, or
abort one. A new column that an older version may leave empty is no such change.
"""

import re

from duesweep.core.errors import Problem

# The journal's second one has leases: earlier versions would take living sweeps for dead.
LEDGER_FORMAT, JOURNAL_FORMAT = 1, 2
# The first version that knows them.
_SINCE = "0.1.0"
_MARK = re.compile(r"duesweep format (?P<number>\d+)(?: \((?P<since>\S+) or newer\))?")


def format_mark(number: int) -> str:
    """What journal and ledger are marked with. Without a mark they are of format 1: the first
    versions left none.
    """
    return f"duesweep format {number} ({_SINCE} or newer)"


def unknown_format(what: str, mark: str | None, known: int) -> Problem | None:
    """The fault if `what` has a newer format than this version knows; else None."""
    found = _MARK.search(mark or "")
    if found is None or int(found["number"]) <= known:
        return None
    version = f"duesweep {found['since']}" if found["since"] else "the version that made it"
    return Problem(
        f"{what} has format {found['number']}, and this version of duesweep knows none above "
        f"{known}",
        f"use {version} or a newer one",
    )
